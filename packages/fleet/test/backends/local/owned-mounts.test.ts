/** A writable mount of a directory of root, and the setuid programs of root that could result. */

import { chmodSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ownedMounts } from "../../../src/host/mounts/owned-mounts.ts";

const mapping = { problem: async () => null };
const isRoot = process.getuid?.() === 0;
let above: string;
let from: string;

beforeEach(() => {
  above = mkdtempSync(join(tmpdir(), "sl-owned-"));
  from = join(above, "project");
  mkdirSync(from, { mode: 0o755 });
});
afterEach(() => rmSync(above, { recursive: true }));

const ask = (refusesSetId: boolean) =>
  ownedMounts([{ from, to: "/mnt/project", readOnly: false }], mapping, { refusesSetId });

test.runIf(isRoot)("is read-only where files can become setuid and others reach them", async () => {
  chmodSync(above, 0o711);
  const { mounts, problems } = await ask(false);
  expect(mounts).toEqual([{ from, to: "/mnt/project", readOnly: true }]);
  expect(problems).toEqual([expect.stringContaining(`${from} is read-only at /mnt/project: it is root's`)]);
});

test.runIf(isRoot)("is writable where the filter refuses setuid, or others do not get there", async () => {
  const writable = { mounts: [{ from, readOnly: false, owner: { uid: 0, gid: 0 } }], problems: [] };
  chmodSync(above, 0o711);
  expect(await ask(true)).toMatchObject(writable);
  chmodSync(above, 0o700);
  chmodSync(from, 0o777);
  expect(await ask(false)).toMatchObject(writable);
});
