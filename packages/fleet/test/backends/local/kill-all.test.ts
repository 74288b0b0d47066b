/**
 * `kill -9 -1` in a busy local sandbox: waiting callers get an error, and the very next call finds the same sandbox.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { expect, it } from "vitest";
import { openFleet } from "../../../src/open-fleet.ts";

it("is there at once after kill -9 -1 under many calls", { timeout: 120_000 }, async () => {
  const home = mkdtempSync(join(tmpdir(), "sl-kill-all-"));
  const fleet = await openFleet({ home, backend: "local" });
  try {
    const lost: string[] = [];
    fleet.events.on(({ type }) => void lost.push(type), "sandbox-lost", "lease-lost");
    const { sandbox } = await fleet.acquire({ thread: "one" });
    await sandbox.exec("echo same > /tmp/mark");
    for (let round = 0; round < 3; round += 1) {
      const { execId } = await sandbox.spawn("sleep 60");
      const { sessionId } = await sandbox.sessions.open();
      const outcomes = [
        sandbox.exec("sleep 60").then(({ status }) => status),
        sandbox.sessions.exec(sessionId, "sleep 60").then(({ status }) => status),
        sandbox.ports.waitFor(9, { timeoutMs: 60_000 }),
        sandbox.execs.waitForOutput(execId, "never", { timeoutMs: 60_000 }),
        sandbox.exec("sleep 0.05; kill -9 -1").then(({ status }) => status),
      ].map((call) => call.catch((error: unknown) => (isSandlotError(error) ? error.code : String(error))));
      expect(await Promise.all(outcomes)).toEqual([
        "lost",
        "lost",
        "sandbox_unreachable",
        "sandbox_unreachable",
        "lost",
      ]);
      // The very next call, in the same sandbox, and the one after it while the fleet reconnects.
      expect(await sandbox.exec("cat /tmp/mark; sleep 0.3")).toMatchObject({ status: "completed", stdout: "same\n" });
      expect(await sandbox.exec("cat /tmp/mark")).toMatchObject({ status: "completed", stdout: "same\n" });
    }
    expect(lost).toEqual([]);
  } finally {
    await fleet.close({ destroy: true });
    rmSync(home, { recursive: true, force: true });
  }
});
