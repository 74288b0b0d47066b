/** The routes of DeerFlow's provisioner. */

import type { Entry, World } from "./catalogue-entry.ts";

const order = ({ thread }: World) => ({ sandbox_id: `id-${thread}`, thread_id: thread, user_id: "alice" });

export const PROVISIONER_ENTRIES: readonly Entry[] = [
  { method: "GET", url: "/health", who: "open", status: 200, request: () => ["/health"] },
  { method: "GET", url: "/api/capabilities", who: "any", status: 200, request: () => ["/api/capabilities"] },
  {
    method: "POST",
    url: "/api/sandboxes",
    who: "owner",
    status: 200,
    // The body names the user, and the key acts for another one.
    foreign: 403,
    request: (world) => ["/api/sandboxes", { json: order(world) }],
    invalid: [
      {},
      { sandbox_id: "a b" },
      { sandbox_id: "a", thread_id: 1 },
      { sandbox_id: "a", user_id: "x/y" },
      [],
      "x",
    ],
  },
  {
    method: "GET",
    url: "/api/sandboxes",
    who: "owner",
    status: 200,
    foreign: 200,
    request: () => ["/api/sandboxes"],
  },
  {
    method: "GET",
    url: "/api/sandboxes/:id",
    who: "owner",
    status: 404,
    foreign: 404,
    request: (world) => [`/api/sandboxes/none-${world.thread}`],
    invalidPaths: () => ["/api/sandboxes/a%2Fb", "/api/sandboxes/%00"],
  },
  {
    method: "DELETE",
    url: "/api/sandboxes/:id",
    who: "owner",
    status: 200,
    foreign: 200,
    request: (world) => [`/api/sandboxes/id-${world.thread}`],
  },
];
