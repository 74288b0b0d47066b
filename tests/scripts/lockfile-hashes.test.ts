/** A package without a hash is a problem, unless it is a counted part of a development tool for another platform. */

import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { type LockEntry, unhashedProblems } from "../../scripts/lockfile-hashes.ts";

const HASH = `sha512-${"A".repeat(86)}==`;
const problems = (entry: LockEntry, path = "node_modules/some", expected: Record<string, number> = {}) => [
  ...unhashedProblems({ [path]: entry }, expected),
];

it("accepts what has a hash, and what is no package of a registry", () => {
  expect(problems({ integrity: HASH })).toEqual([]);
  expect(problems({ link: true })).toEqual([]);
  expect(problems({}, "packages/fleet")).toEqual([]);
  expect(problems({}, "")).toEqual([]);
});

it("refuses what has none, or a weak one", () => {
  const missing = ["package-lock.json: node_modules/some has no hash; run `npm run lock`"];
  expect(problems({})).toEqual(missing);
  expect(problems({ optional: true })).toEqual(missing);
  expect(problems({ os: ["darwin"] })).toEqual(missing);
  expect(problems({ optional: true, os: ["linux"], cpu: ["x64"] })).toEqual(missing);
  expect(problems({ optional: true, os: ["linux"], cpu: ["x64"], libc: ["glibc"] })).toEqual(missing);
  expect(problems({ integrity: "sha1-AAAA" })).toHaveLength(1);
});

it("lets the counted parts of development tools for other platforms be", () => {
  const tool = (entry: LockEntry, count = 1) => problems(entry, "node_modules/tool-part", { "tool-": count });
  const others: LockEntry[] = [{ os: ["darwin"] }, { cpu: ["arm64"] }, { os: ["linux"], cpu: ["x64"], libc: ["musl"] }];
  for (const other of others) {
    expect(tool({ optional: true, dev: true, ...other })).toEqual([]);
    // What npm start installs on that platform, a package of no known tool, and more or fewer than were counted.
    expect(tool({ optional: true, ...other })).toHaveLength(2);
    expect(problems({ optional: true, dev: true, ...other })).toHaveLength(1);
    expect(tool({ optional: true, dev: true, ...other }, 2)).toHaveLength(1);
    expect(tool({ optional: true, dev: true, ...other }, 0)).toHaveLength(1);
  }
});

it("finds a package of our own lockfile that lost its hash", () => {
  const { packages } = JSON.parse(readFileSync(new URL("../../package-lock.json", import.meta.url), "utf8"));
  expect([...unhashedProblems(packages)]).toEqual([]);
  const { integrity: _, ...bare } = packages["node_modules/vitest"];
  expect([...unhashedProblems({ ...packages, "node_modules/vitest": bare })]).toHaveLength(1);
});
