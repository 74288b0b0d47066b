/** The audit log's file: added lines are in it, also across a rotation, and when the rotation fails. */

import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readSync,
  rmdirSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AuditEntry } from "@sandlot/contract";
import { afterEach, beforeEach, expect, test } from "vitest";
import { AuditLog } from "../../src/gateway/audit-log.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const FULL_BYTES = 64 * 1024 * 1024;

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "slk-"));
});
afterEach(() => rmSync(home, { recursive: true }));

const file = (name: string) => join(home, "audit", name);
/** The content after the sparse part of a filled file. */
function requestsIn(name: string): readonly string[] {
  const { size } = statSync(file(name));
  const descriptor = openSync(file(name), "r");
  const bytes = Buffer.alloc(Math.min(size, 4_096));
  readSync(descriptor, bytes, 0, bytes.length, size - bytes.length);
  closeSync(descriptor);
  const lines = bytes.toString("utf8").replaceAll("\0", "").split("\n");
  return lines.filter((line) => line !== "").map((line) => (JSON.parse(line) as AuditEntry).requestId);
}
const entry = (requestId: string): AuditEntry => ({
  ...{ at: 1, requestId, keyId: "k", scope: "user", user: "u", thread: "t", method: "POST", route: "/r" },
  ...{ status: 200, code: null, remoteAddress: "127.0.0.1" },
});
const open = (problems: unknown[] = []) => AuditLog.open(home, systemWorld(), (problem) => problems.push(problem));

/** A sparse file of the maximum length. */
function fill(): void {
  mkdirSync(join(home, "audit"));
  writeFileSync(file("audit.jsonl"), "");
  truncateSync(file("audit.jsonl"), FULL_BYTES);
}

test("has every entry without configuration, readable for its own account only", async () => {
  const log = await open();
  for (const id of ["one", "two", "three"]) log.add(entry(id));
  await expect.poll(() => requestsIn("audit.jsonl")).toEqual(["one", "two", "three"]);
  log.add(entry("four"));
  await log.close();
  expect(requestsIn("audit.jsonl")).toEqual(["one", "two", "three", "four"]);
  expect(log.newest({ limit: 2 }).map(({ requestId }) => requestId)).toEqual(["four", "three"]);
  expect(statSync(file("audit.jsonl")).mode & 0o777).toBe(0o600);
});

test("goes on in the next file when one is full", async () => {
  fill();
  const log = await open();
  log.add(entry("last"));
  await expect.poll(() => statSync(file("audit.jsonl")).size).toBe(0);
  log.add(entry("first"));
  await log.close();
  expect([requestsIn("audit.1.jsonl"), requestsIn("audit.jsonl")]).toEqual([["last"], ["first"]]);
});

test("says once that the file cannot be changed, and loses nothing when it can again", async () => {
  fill();
  mkdirSync(file("audit.1.jsonl"));
  const problems: unknown[] = [];
  const log = await open(problems);
  log.add(entry("one"));
  await expect.poll(() => problems.length).toBe(1);
  log.add(entry("two"));
  await expect.poll(() => requestsIn("audit.jsonl")).toEqual(["one", "two"]);
  rmdirSync(file("audit.1.jsonl"));
  log.add(entry("three"));
  log.add(entry("four"));
  await log.close();
  expect([...requestsIn("audit.1.jsonl"), ...requestsIn("audit.jsonl")]).toEqual(["one", "two", "three", "four"]);
  expect(problems).toHaveLength(1);
});
