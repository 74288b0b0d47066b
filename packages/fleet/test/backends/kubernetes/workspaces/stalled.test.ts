/**
 * A volume whose server does not respond: calls end with a typed error at their deadline, and this process, which stands for
 * a gateway, neither waits in the kernel nor loses its thread pool. First with a stopped process; then with a file system
 * that really blocks its callers, so that not even a killed process ends.
 */

import { execFileSync } from "node:child_process";
import { lookup } from "node:dns/promises";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { expect, it } from "vitest";
import { SharedWorkspaces } from "../../../../src/backends/kubernetes/workspaces/shared-workspaces.ts";
import { outcomeOf, VolumeGround, world } from "./volume-ground.ts";

const DEADLINE_MS = 3_000;
const owner = { user: "user" as UserId, thread: "thread" as ThreadId };
const spot = { ...owner, sandboxId: "box" as SandboxId, generation: 7 as never, place: "home" } as const;

function open(mountPath: string): SharedWorkspaces {
  return new SharedWorkspaces({
    ...{ claimName: "claim", mountPath, folder: "fleet", world, hasLateBinding: true },
    deadlineMs: DEADLINE_MS,
  });
}

/** The first call starts the process, which may take long on a busy machine. */
async function warmUp(shared: SharedWorkspaces): Promise<void> {
  await expect.poll(() => outcomeOf(shared.look(spot)), { timeout: 60_000 }).toMatchObject({ stale: false });
}

/** The longest time in which this process did not get a turn. */
async function longestGap(work: () => Promise<unknown>): Promise<number> {
  let [last, longest] = [performance.now(), 0];
  const timer = setInterval(() => {
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }, 5);
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
  return longest;
}

/** Every kind of call at once, and what a gateway does beside it. */
async function callsDuring(shared: SharedWorkspaces): Promise<readonly unknown[]> {
  const content = async function* () {
    yield Buffer.from("upload");
  };
  const calls = [
    shared.look(spot),
    shared.fence({ labels: {}, marker: { ...spot, token: "", blueprint: "", blueprintHash: "" } } as never),
    shared.purge(spot),
    shared.release("slot:box-1"),
    shared.latestGeneration(),
    shared.files.use(owner, (files) => files.write("/mnt/user-data/uploads/a", content(), null)),
    shared.files.openFile?.(owner, "/mnt/user-data/workspace/a") ?? Promise.resolve(),
  ];
  await lookup("localhost");
  return Promise.all(calls.map((call) => outcomeOf(call)));
}

it("a process that is stopped is replaced, and every call ends at its deadline", { timeout: 120_000 }, async () => {
  const ground = new VolumeGround();
  const shared = open(ground.root);
  try {
    await warmUp(shared);
    const { pid } = shared.volume;
    if (pid === undefined) throw new Error("the process runs");
    process.kill(pid, "SIGSTOP");
    const gapMs = await longestGap(async () => {
      expect(new Set(await callsDuring(shared))).toEqual(new Set(["engine_unavailable"]));
    });
    console.log(`stopped process: longest gap of the event loop ${gapMs.toFixed(0)} ms, deadline ${DEADLINE_MS} ms`);
    expect(gapMs).toBeLessThan(DEADLINE_MS / 2);
    await warmUp(shared);
    expect(shared.volume.pid).not.toBe(pid);
  } finally {
    await shared.close();
    ground.dispose();
  }
});

/**
 * Freezes a file system of its own. Callers in the kernel cannot be killed until it is thawed, so a run that is cut off
 * leaves them behind: only on request.
 */
if (process.env.SANDLOT_TEST_FREEZE === "1")
  it("a file system that blocks its callers in the kernel blocks no gateway", { timeout: 180_000 }, async (context) => {
    if (process.getuid?.() !== 0) return context.skip("only root can mount");
    const work = mkdtempSync(join(tmpdir(), "sandlot-frozen-"));
    const [image, mount] = [join(work, "image"), join(work, "mount")];
    const run = (program: string, ...args: string[]) => execFileSync(program, args, { stdio: "pipe" });
    run("mkdir", mount);
    run("truncate", "-s", "32M", image);
    run("mkfs.ext4", "-q", image);
    try {
      run("mount", "-o", "loop", image, mount);
    } catch (error) {
      rmSync(work, { recursive: true });
      return context.skip(`no loop device: ${error}`);
    }
    const shared = open(mount);
    let isFrozen = false;
    try {
      await warmUp(shared);
      const { pid } = shared.volume;
      run("fsfreeze", "-f", mount);
      isFrozen = true;
      const gapMs = await longestGap(async () => {
        const outcomes = await callsDuring(shared);
        expect(outcomes).toContain("engine_unavailable");
        expect(outcomes.filter((one) => one !== "engine_unavailable" && one !== 0 && one !== null)).toEqual([]);
        // The killed process waits in the kernel. No second one joins it.
        expect(await outcomeOf(shared.look(spot))).toBe("engine_unavailable");
        expect(shared.volume.pid).toBe(undefined);
      });
      console.log(
        `frozen file system: longest gap of the event loop ${gapMs.toFixed(0)} ms, deadline ${DEADLINE_MS} ms`,
      );
      expect(gapMs).toBeLessThan(DEADLINE_MS / 2);
      run("fsfreeze", "-u", mount);
      isFrozen = false;
      await warmUp(shared);
      expect(shared.volume.pid).not.toBe(pid);
    } finally {
      if (isFrozen) run("fsfreeze", "-u", mount);
      await shared.close();
      await expect
        .poll(() => outcomeOf(Promise.resolve().then(() => run("umount", mount).length)), { timeout: 20_000 })
        .toBe(0);
      rmSync(work, { recursive: true });
    }
  });
