/** Commands that wait for their followers (`output: "hold"`), at a real daemon. */

import { createHash } from "node:crypto";
import { PassThrough } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { type FollowEvent, FRAME, FRAME_HEADER_BYTES, SANDBOX_LIMITS } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { readFrames } from "../../src/sandboxd/frames.ts";
import type { DaemonSandbox } from "../../src/sandboxd/index.ts";
import { UnitGuard } from "../../src/untrusted/units.ts";
import { attached } from "./attached.ts";
import { eventually, isAlive } from "./expectations.ts";

const RING = SANDBOX_LIMITS.execOutputMaxBytes;
const TOTAL = 3 * RING + 12_345;
/** The same bytes for the same count, and no two 64 KiB of it are alike. */
const printing = (count: number) => `seq 1 100000000 | head -c ${count}`;
const expected = (count: number) => {
  const hash = createHash("sha256");
  let left = count;
  for (let number = 1; left > 0; ) {
    let text = "";
    for (; text.length < 1_000_000; number++) text += `${number}\n`;
    hash.update(text.slice(0, left));
    left -= text.length;
  }
  return hash.digest("hex");
};

describe("a command that is held", () => {
  test("waits for a slow follower, and loses nothing", async () => {
    const { sandbox } = await attached();
    const { execId } = await sandbox.spawn(printing(TOTAL), { output: "hold" });
    const reader = new Reader();
    let waited = false;
    for await (const event of sandbox.execs.follow(execId)) {
      reader.take(event);
      if (waited || reader.bytes < RING) continue;
      waited = true;
      await sleep(700);
      const info = await infoOf(sandbox, execId);
      expect(info).toMatchObject({ status: "running", output: "hold" });
      expect(info.stdoutBytes).toBeLessThan(reader.bytes + RING);
    }
    expect(reader).toMatchObject({ bytes: TOTAL, gaps: [], end: { status: "completed", stdoutBytes: TOTAL } });
    expect(reader.sum()).toBe(expected(TOTAL));
  });

  test("waits for a follower that was cut off and goes on from its offset", async () => {
    const { sandbox } = await attached();
    const { execId } = await sandbox.spawn(printing(TOTAL), { output: "hold" });
    const reader = new Reader();
    while (reader.end === null) {
      const until = reader.bytes + RING;
      for await (const event of sandbox.execs.follow(execId, { from: { stdout: reader.bytes } })) {
        reader.take(event);
        // Sent but unread bytes are lost with the connection.
        if (reader.bytes >= until) break;
      }
      await sleep(200);
    }
    expect(reader).toMatchObject({ bytes: TOTAL, gaps: [] });
    expect(reader.sum()).toBe(expected(TOTAL));
  });

  test("waits for the slowest of its followers, and not for one that only watches", async () => {
    const { sandbox } = await attached();
    const { execId } = await sandbox.spawn(printing(TOTAL), { output: "hold" });
    const watcher = sandbox.execs.follow(execId, { hold: false })[Symbol.asyncIterator]();
    await watcher.next();
    const slow = new Reader();
    const fast = new Reader();
    const reading = (async () => {
      for await (const event of sandbox.execs.follow(execId)) fast.take(event);
    })();
    for await (const event of sandbox.execs.follow(execId)) {
      slow.take(event);
      if (slow.bytes % (RING / 2) < 65_536) await sleep(50);
    }
    await reading;
    expect([slow.gaps, fast.gaps, slow.bytes, fast.bytes]).toEqual([[], [], TOTAL, TOTAL]);
    await watcher.return?.(undefined);
  });

  test("goes on without a follower after a while, and what is lost is counted", async () => {
    const { sandbox } = await attached({ config: { outputHoldMs: 400 } });
    const { execId } = await sandbox.spawn(printing(TOTAL), { output: "hold" });
    await eventually(async () => (await infoOf(sandbox, execId)).stdoutBytes > RING / 2);
    await sleep(100);
    expect((await infoOf(sandbox, execId)).status).toBe("running");
    await eventually(async () => (await infoOf(sandbox, execId)).status === "completed");
    const reader = await read(sandbox, execId);
    const [gap] = reader.gaps;
    expect(gap?.fromOffset).toBe(0);
    expect(reader.bytes + (gap?.toOffset ?? 0)).toBe(TOTAL);
  });

  test("ends on request, or at its timeout, after any wait", async () => {
    const { sandbox } = await attached();
    const killed = await sandbox.spawn("yes", { output: "hold" });
    const timed = await sandbox.spawn("yes", { output: "hold", timeoutMs: 600 });
    await eventually(async () => (await infoOf(sandbox, killed.execId)).stdoutBytes > RING / 2);
    const startedAt = performance.now();
    expect(await sandbox.execs.kill(killed.execId)).toBe(true);
    expect(performance.now() - startedAt).toBeLessThan(5_000);
    await eventually(async () => (await infoOf(sandbox, timed.execId)).status === "timed_out");
    expect(isAlive(timed.pid ?? 0)).toBe(false);
    const reader = await read(sandbox, killed.execId);
    expect(reader).toMatchObject({ gaps: [], end: { status: "killed" } });
  });

  test("has what it left in its pipe delivered after its end", async () => {
    const { sandbox } = await attached();
    // The rest is in the pipe when the command ends: without a follower there is no room for another full read.
    const count = RING - 10_000;
    const { execId } = await sandbox.spawn(`head -c ${count} /dev/zero`, { output: "hold" });
    await eventually(async () => (await infoOf(sandbox, execId)).status === "completed");
    expect(await read(sandbox, execId)).toMatchObject({ bytes: count, gaps: [] });
  });
});

test("a command that is not held never waits", async () => {
  const { sandbox } = await attached();
  const { execId } = await sandbox.spawn(printing(TOTAL));
  await eventually(async () => (await infoOf(sandbox, execId)).status === "completed");
  expect((await read(sandbox, execId)).gaps).toHaveLength(1);
});

test("a reader that pauses in the middle of a frame is not taken for a daemon that does", async () => {
  const frame = Buffer.alloc(FRAME_HEADER_BYTES + 4);
  frame.writeUInt8(FRAME.stdout, 0);
  frame.writeUInt32BE(4, 9);
  const source = new PassThrough();
  let armed = 0;
  const guard = new UnitGuard(source, () => {
    armed += 1;
    const cancel = () => {
      armed -= 1;
    };
    return { cancel };
  });
  const events = readFrames(source, { stdout: 0, stderr: 0 }, guard);
  const first = events.next();
  source.write(frame.subarray(0, 15));
  await eventually(() => armed === 1);
  source.write(frame.subarray(15));
  expect((await first).value).toMatchObject({ type: "output", offset: 0 });
  expect(armed).toBe(0);
  await events.return(undefined);
});

class Reader {
  bytes = 0;
  readonly gaps: { readonly fromOffset: number; readonly toOffset: number }[] = [];
  end: object | null = null;
  readonly #hash = createHash("sha256");

  take(event: FollowEvent): void {
    if (event.type === "end") this.end = event.end;
    else if (event.type === "gap") this.gaps.push(event);
    else if (event.stream === "stdout") {
      this.bytes += event.bytes.length;
      this.#hash.update(event.bytes);
    }
  }

  sum(): string {
    return this.#hash.digest("hex");
  }
}

async function read(sandbox: DaemonSandbox, execId: string): Promise<Reader> {
  const reader = new Reader();
  for await (const event of sandbox.execs.follow(execId)) reader.take(event);
  return reader;
}

async function infoOf(sandbox: DaemonSandbox, execId: string) {
  const info = (await sandbox.execs.list()).find((one) => one.execId === execId);
  if (info === undefined) throw new Error(`there is no ${execId}`);
  return info;
}
