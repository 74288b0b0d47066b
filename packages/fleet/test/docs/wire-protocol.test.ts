/** docs/wire-protocol.md names every route of a daemon that a fleet may call, and the headers of each request. */

import { DAEMON_HEADERS } from "@sandlot/contract";
import { expect, test } from "vitest";
import { DAEMON_LIMITS } from "../../src/untrusted/limits.ts";
import { read } from "./documents.ts";

const page = read("docs/wire-protocol.md");

test("it names every route", () => {
  const routes = Object.keys(DAEMON_LIMITS).map((path) => path.replace("/sandlot/", ""));
  expect(routes.length).toBeGreaterThan(30);
  const named = (route: string) => page.includes(`/sandlot/${route}\``) || listed(route);
  // Files, and read-only requests, stand together: one row or one table has their common prefix.
  const listed = (route: string) => new RegExp(`\`[^\`]*\\b${route.replace("files/", "")}\\b[^\`]*\``).test(page);
  expect(routes.filter((route) => !named(route))).toEqual([]);
});

test("it names the headers", () => {
  expect(Object.values(DAEMON_HEADERS).filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
});
