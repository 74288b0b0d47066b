/**
 * Files that the host writes into a sandbox's workspace: within the sandbox's disk budget, whatever runs inside
 * meanwhile.
 */

import { globSync, linkSync, mkdtempSync, readdirSync, renameSync, rmSync, unlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isSandlotError, type ThreadId, type UserId } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { HostWorkspaces } from "../../src/backend/host-workspaces.ts";
import type { Fleet, Lease } from "../../src/fleet.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { hasBubblewrap } from "./support/gateway-process.ts";

const MIB = 1024 * 1024;
const BUDGET_BYTES = 64 * MIB;
const DIRECTORY = "/mnt/user-data/workspace";
const KEY = { user: "alice" as UserId, thread: "t" as ThreadId };

describe.skipIf(!hasBubblewrap)("a write by the host (skipped where bubblewrap is not installed)", () => {
  const home = mkdtempSync(join(tmpdir(), "slh-"));
  let fleet: Fleet;
  let host: HostWorkspaces;
  let lease: Lease;

  beforeAll(async () => {
    const blueprints = { default: { limits: { diskBytes: BUDGET_BYTES, filesMax: 2_000 } } };
    const opened = await openFleetAndHost({ home, backend: "local", blueprints });
    if (opened.hostWorkspaces === null) throw new Error("the local backend's workspaces are on this disk");
    [fleet, host] = [opened.fleet, opened.hostWorkspaces];
    lease = await fleet.acquire(KEY);
  }, 60_000);

  afterAll(async () => {
    await lease.release();
    await fleet.destroy(KEY, { force: true, purge: true });
    await fleet.close({ destroy: true });
    rmSync(home, { recursive: true });
  }, 60_000);

  /** Bytes taken of the last content. */
  let sent = 0;
  async function* zeros(bytes: number, pauseMs = 0) {
    for (let count = 0; count < bytes; count += MIB) {
      if (pauseMs > 0) await sleep(pauseMs);
      yield Buffer.alloc(MIB);
      sent = count;
    }
  }
  const write = (name: string, content: AsyncIterable<Uint8Array>) => {
    const path = `${DIRECTORY}/${name}`;
    return host.writeFile?.(KEY, path, content, {}) ?? Promise.resolve(null);
  };
  const outcome = (work: Promise<unknown>) =>
    work.then(
      (value) => (value === null ? "through the sandbox" : "written"),
      (error: unknown) => (isSandlotError(error) ? error.code : String(error)),
    );
  const inside = async (command: string) => (await lease.sandbox.exec(command, { cwd: DIRECTORY })).stdout;
  const usedBytes = async () => Number((await inside("du -sB1 .")).split("\t")[0]);
  /** The one thread's directory on this disk: at home, or in the slot of its sandbox. */
  function onDisk(): string {
    const found = globSync(["*/homes/*/user-data/workspace", "*/slots/*/mnt/user-data/workspace"], { cwd: home });
    expect(found.length).toBe(1);
    return join(home, found[0] ?? "");
  }
  async function clear(): Promise<string> {
    const directory = onDisk();
    for (const name of readdirSync(directory)) rmSync(join(directory, name), { recursive: true });
    return inside("ls -A");
  }

  test("needs no daemon, and belongs to the sandbox", async () => {
    expect(await write("a/b", zeros(3 * MIB))).toMatchObject({ path: `${DIRECTORY}/a/b`, sizeBytes: 3 * MIB });
    expect(await inside("stat -c '%U %a %s' a a/b")).toBe(`sandbox 755 ${4_096}\nsandbox 644 ${3 * MIB}\n`);
    expect(
      await outcome(
        host.writeFile?.({ ...KEY, thread: "none" as ThreadId }, `${DIRECTORY}/x`, zeros(1), {}) ?? sleep(0),
      ),
    ).toBe("through the sandbox");
  });

  test("that does not fit is refused on its way, and leaves nothing", async () => {
    expect(await clear()).toBe("");
    expect(await outcome(write("large", zeros(3 * BUDGET_BYTES)))).toBe("disk_limit_exceeded");
    expect(sent).toBeLessThan(BUDGET_BYTES + 8 * MIB);
    expect(await inside("ls -A")).toBe("");
    expect(await outcome(write("fits", zeros(BUDGET_BYTES / 2)))).toBe("written");
  }, 60_000);

  test("counts with what others write at the same time, by the host and through the sandbox", async () => {
    await clear();
    const both = [
      ...["a", "b", "c"].map((name) => outcome(write(name, zeros((BUDGET_BYTES / 4) * 1.5)))),
      outcome(lease.sandbox.files.upload(`${DIRECTORY}/d`, zeros((BUDGET_BYTES / 4) * 1.5))),
    ];
    const outcomes = await Promise.all(both);
    expect(outcomes.filter((one) => one === "written").length).toBeLessThan(3);
    expect(outcomes).toContain("disk_limit_exceeded");
    expect(await usedBytes()).toBeLessThan(BUDGET_BYTES + MIB);
  }, 60_000);

  // From inside, where mapped files are closed to it while they are written, and as an account that may.
  test.each<[string, string, (draft: string, kept: string) => void]>([
    ["removed", "rm -f .sandlot-draft-*", (draft) => unlinkSync(draft)],
    ["moved", 'for f in .sandlot-draft-*; do mv "$f" "kept-$((n += 1))"; done', renameSync],
    ["linked", 'for f in .sandlot-draft-*; do ln "$f" "kept-$((n += 1))"; done', linkSync],
  ])(
    "whose file is %s meanwhile stays within the budget",
    async (how, command, deed) => {
      await clear();
      const loop = `n=0; : > ready; while :; do ${command}; sleep 0.01; done 2>/dev/null`;
      const { execId } = await lease.sandbox.spawn(loop, { cwd: DIRECTORY });
      await expect.poll(() => inside("ls ready 2>/dev/null"), { timeout: 10_000 }).toBe("ready\n");
      const directory = onDisk();
      let count = 0;
      const timer = setInterval(() => {
        for (const name of readdirSync(directory).filter((one) => one.startsWith(".sandlot-draft-"))) {
          count += 1;
          deed(join(directory, name), join(directory, `out-${count}`));
        }
      }, 20);
      const ended = await outcome(write("target", zeros(3 * BUDGET_BYTES, 5)));
      clearInterval(timer);
      await lease.sandbox.execs.kill(execId);
      expect([count > 0, ended]).toEqual([true, how === "removed" ? "file_not_found" : "disk_limit_exceeded"]);
      // A file that lost its name is not written any further.
      expect(sent).toBeLessThan(how === "removed" ? 24 * MIB : BUDGET_BYTES + 8 * MIB);
      expect(await usedBytes()).toBeLessThan(BUDGET_BYTES + MIB);
      expect(await inside("ls target 2>&1")).toContain("No such file");
    },
    60_000,
  );
});
