/** The routes of timelines. */

import { type Entry, thread } from "./catalogue-entry.ts";

export const TIMELINE_ENTRIES: readonly Entry[] = [
  {
    method: "GET",
    url: "/v1/threads/:thread/timeline",
    who: "owner",
    status: 200,
    foreign: 404,
    request: (world) => [thread(world, "/timeline?limit=1000")],
    invalidPaths: (world) => [
      thread(world, "/timeline?limit=0"),
      thread(world, "/timeline?limit=1001"),
      thread(world, "/timeline?from=-1"),
      thread(world, "/timeline?kind=everything"),
      thread(world, "/timeline?kind="),
      thread(world, "/timeline?more=1"),
    ],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/timeline/stream",
    who: "owner",
    status: 200,
    foreign: 404,
    request: (world) => [thread(world, "/timeline/stream?from=0")],
    endless: true,
    invalidPaths: (world) => [thread(world, "/timeline/stream?from=x"), thread(world, "/timeline/stream?kind=x")],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/timeline/export",
    who: "owner",
    status: 200,
    foreign: 404,
    request: (world) => [thread(world, "/timeline/export?format=json")],
    invalidPaths: (world) => [thread(world, "/timeline/export?format=exe")],
  },
  {
    method: "GET",
    url: "/v1/threads/:thread/usage/stream",
    who: "owner",
    status: 200,
    foreign: 404,
    request: (world) => [thread(world, "/usage/stream")],
    endless: true,
    invalidPaths: (world) => [thread(world, "/usage/stream?every=1")],
  },
];
