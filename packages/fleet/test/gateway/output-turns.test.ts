/**
 * The cost of one sandbox's large output for all others: the processor time of each turn of the event loop of a process
 * that is fleet and gateway. The sandbox and its daemon are separate processes, and callers take bytes without parsing
 * them.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SANDBOX_LIMITS } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Fleet } from "../../src/fleet.ts";
import { type Gateway, startGateway } from "../../src/gateway/start-gateway.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { worstTurn } from "../support/turn-watch.ts";
import { hasBubblewrap } from "./support/gateway-process.ts";

const TURN_MAX_MS = 50;
/** Six times as long as JSON, and on both streams. */
const ZEROS = "head -c 30000000 /dev/zero; head -c 30000000 /dev/zero >&2";

describe.skipIf(!hasBubblewrap)("large output of one sandbox (skipped where bubblewrap is not installed)", () => {
  const home = mkdtempSync(join(tmpdir(), "slt-"));
  let fleet: Fleet;
  let gateway: Gateway;
  let key: string;

  beforeAll(async () => {
    ({ fleet } = await openFleetAndHost({ home, backend: "local" }));
    gateway = await startGateway({ fleet, home, world: systemWorld(), settings: { port: 0 } });
    ({ key } = await gateway.keys.create({ scope: "user", user: "alice" }));
    // Loading and compiling at the first use must not count.
    for (const how of [{}, { accept: "text/event-stream" }]) await taken(how, "printf a; printf b >&2");
    for (let count = 0; count < 3; count++) await taken({}, ZEROS);
  }, 120_000);

  afterAll(async () => {
    await fleet.destroy({ user: "alice", thread: "big" }, { force: true, purge: true });
    await gateway.close();
    await fleet.close({ destroy: true });
    rmSync(home, { recursive: true });
  }, 60_000);

  /** The length of a command's response, and its status. */
  function taken(headers: Record<string, string>, command: string, more: object = {}): Promise<[number, number]> {
    return new Promise((resolve, reject) => {
      const asked = request(`${gateway.url}/v1/threads/big/exec`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
      });
      asked.once("error", reject);
      asked.once("response", (response) => {
        let length = 0;
        response.on("data", (bytes: Buffer) => (length += bytes.length));
        response.once("error", reject).once("end", () => resolve([response.statusCode ?? 0, length]));
      });
      asked.end(JSON.stringify({ command, ...more }));
    });
  }

  test("does not block the event loop when a caller waits for it, nor when six do", async () => {
    const results: (readonly [number, number])[] = [];
    const one = await worstTurn(async () => results.push(await taken({}, ZEROS)));
    const six = await worstTurn(async () => {
      results.push(...(await Promise.all(Array.from({ length: 6 }, () => taken({}, ZEROS)))));
    });
    console.log(`worst turn: ${one.toFixed(1)} ms for one caller, ${six.toFixed(1)} ms for six`);
    for (const [status, length] of results) {
      expect(status).toBe(200);
      expect(length).toBeGreaterThan(2 * 6 * SANDBOX_LIMITS.execResultMaxBytes - 1);
    }
    expect(Math.max(one, six)).toBeLessThan(TURN_MAX_MS);
  }, 120_000);

  test("does not block the event loop when it is read as it comes", async () => {
    const worst = await worstTurn(() => taken({ accept: "text/event-stream" }, ZEROS));
    console.log(`worst turn: ${worst.toFixed(1)} ms for a stream of events`);
    expect(worst).toBeLessThan(TURN_MAX_MS);
  }, 120_000);

  test("does not block the event loop in the library, as much of it as there can be", async () => {
    const lease = await fleet.acquire({ user: "alice", thread: "big" });
    const { execOutputMaxBytes: outputMaxBytes } = SANDBOX_LIMITS;
    const work = async () => {
      const { stdout } = await lease.sandbox.exec(ZEROS, { outputMaxBytes });
      expect(stdout.length).toBe(outputMaxBytes);
    };
    await work();
    const worst = await worstTurn(work);
    console.log(`worst turn: ${worst.toFixed(1)} ms for all that a command may leave`);
    await lease.release();
    expect(worst).toBeLessThan(TURN_MAX_MS);
  }, 120_000);
});
