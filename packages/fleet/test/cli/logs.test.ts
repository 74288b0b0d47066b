/**
 * `sandlot logs` watches: no command waits for it, and it reports what it missed. With its own fleet and through a
 * gateway.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SANDBOX_LIMITS, type Sandbox } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Fleet } from "../../src/fleet.ts";
import { serve } from "../../src/gateway/index.ts";
import { openFleet, openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { hasBubblewrap } from "../gateway/support/gateway-process.ts";
import { runHere } from "./run-here.ts";

/** More than the room of the sandbox and of every connection on the way. */
const TOTAL = 4 * SANDBOX_LIMITS.execOutputMaxBytes;
const GAP = /^\[(?:the first )?(\d+) bytes of stdout are no longer held\]$/gm;
const root = mkdtempSync(join(tmpdir(), "sll-"));

afterAll(() => rmSync(root, { recursive: true, force: true }));

/** A held command with a quick reader, and beside it a log whose terminal takes nothing until the command has ended. */
async function watchedSlowly(sandbox: Sandbox, logs: (slow: () => Promise<void>) => ReturnType<typeof runHere>) {
  const { execId } = await sandbox.spawn(`sleep 1; yes | head -c ${TOTAL}`, { output: "hold", execId: "printing" });
  const ended = Promise.withResolvers<void>();
  const log = logs(() => ended.promise);
  let readBytes = 0;
  for await (const event of sandbox.execs.follow(execId))
    if (event.type === "output") readBytes += event.bytes.byteLength;
  ended.resolve();
  const { code, stdout, stderr } = await log;
  const missedBytes = [...stderr.matchAll(GAP)].reduce((sum, [, count]) => sum + Number(count), 0);
  return { readBytes, code, shownBytes: stdout.length, missedBytes, stderr };
}

describe("logs through a gateway", () => {
  let served: Awaited<ReturnType<typeof serve>>;
  let environment: Record<string, string>;

  beforeAll(async () => {
    const home = join(root, "served");
    const open = () => openFleetAndHost({ home, backend: "memory" });
    served = await serve({ openFleet: open, home, gateway: { port: 0 }, world: systemWorld() });
    const { key } = await served.keys.create({ scope: "user", user: "ada" });
    environment = { SANDLOT_HOME: join(root, "ada"), SANDLOT_URL: served.url, SANDLOT_API_KEY: key };
  });
  afterAll(() => served.close({ destroy: true }));

  it("let a held command go on, and say what they missed", async () => {
    await using lease = await served.fleet.acquire({ user: "ada", thread: "busy" });
    const seen = await watchedSlowly(lease.sandbox, (slow) =>
      runHere(["logs", "-t", "busy", "-f", "printing"], environment, undefined, slow),
    );
    expect(seen).toMatchObject({ readBytes: TOTAL, code: 1 });
    expect(seen.missedBytes).toBeGreaterThan(0);
    expect(seen.shownBytes + seen.missedBytes).toBe(TOTAL);
    expect(seen.stderr).toContain(`Error: ${seen.missedBytes} bytes of stdout and 0 bytes of stderr were dropped`);
  });

  it("list no sessions where the backend has none", async () => {
    await using lease = await served.fleet.acquire({ user: "ada", thread: "plain" });
    await lease.sandbox.exec("echo x", { execId: "one" });
    const { code, stdout } = await runHere(["logs", "-t", "plain", "--json"], environment);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ execs: [{ execId: "one" }], sessions: [] });
  });
});

describe.skipIf(!hasBubblewrap)("logs without a gateway (skipped where bubblewrap is not installed)", () => {
  const home = join(root, "own");
  const logs = (...args: string[]) => runHere(["logs", "-t", "t1", ...args], { SANDLOT_HOME: home });
  let fleet: Fleet;

  beforeAll(async () => {
    fleet = await openFleet({ home, backend: "local" });
  });
  afterAll(async () => {
    await fleet.destroy({ thread: "t1" }, { force: true, purge: true });
    await fleet.close();
  });

  it("let a held command go on, and say what they missed", async () => {
    await using lease = await fleet.acquire({ thread: "t1" });
    const seen = await watchedSlowly(lease.sandbox, (slow) =>
      runHere(["logs", "-t", "t1", "-f", "printing"], { SANDLOT_HOME: home }, undefined, slow),
    );
    expect(seen).toMatchObject({ readBytes: TOTAL, code: 1 });
    expect(seen.missedBytes).toBeGreaterThan(0);
    expect(seen.shownBytes + seen.missedBytes).toBe(TOTAL);
  });

  it("say so when a command's first output is no longer held", async () => {
    await using lease = await fleet.acquire({ thread: "t1" });
    const extra = 1_000;
    const count = SANDBOX_LIMITS.execOutputMaxBytes + extra;
    await lease.sandbox.exec(`yes | head -c ${count}`, { execId: "long" });
    const { code, stdout, stderr } = await logs("long");
    expect(code).toBe(1);
    const [, missed] = /^\[the first (\d+) bytes of stdout are no longer held\]$/m.exec(stderr) ?? [];
    expect(Number(missed)).toBeGreaterThanOrEqual(extra);
    expect(stdout.length + Number(missed)).toBe(count);
  });

  it("show what a session's command has printed until now, and list sessions", async () => {
    await using lease = await fleet.acquire({ thread: "t1" });
    const { sessionId } = await lease.sandbox.sessions.open({ sessionId: "s1" });
    expect((await logs("--session", sessionId)).stderr).toContain("exec_not_found");
    await lease.sandbox.sessions.exec(sessionId, "echo before");
    const bytes = SANDBOX_LIMITS.execResultMaxBytes + 10_000;
    const running = lease.sandbox.sessions.exec(sessionId, `yes | head -c ${bytes}; echo trouble >&2; sleep 60`);
    running.catch(() => undefined);
    // More than one part of it, while it runs.
    await expect.poll(async () => (await logs("--session", sessionId)).stderr).toBe("trouble\n");
    const { code, stdout } = await logs("-s", sessionId);
    expect([code, stdout.length, stdout.slice(0, 4)]).toEqual([0, bytes, "y\ny\n"]);
    expect((await logs("--list")).stdout).toMatch(/^SESSION.*\ns1 +busy +\S+ +\S+$/m);
    expect((await logs("-f", "-s", sessionId)).stderr).toContain("cannot be combined with --follow");
    expect((await logs("one", "-s", sessionId)).stderr).toContain("cannot be combined with a command's id");
    await lease.sandbox.sessions.close(sessionId);
    expect((await logs("-s", sessionId)).code).toBe(1);
  });
});
