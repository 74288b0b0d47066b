/** An upload whose gateway is killed (SIGKILL), and another gateway of the same fleet: real processes, PostgreSQL, real sandboxes. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { hasBubblewrap, startGatewayProcess } from "../gateway/support/gateway-process.ts";
import { names, PIECE, read, SlowUpload, sendWhole } from "../gateway/support/shared-uploads.ts";
import { Caller } from "../gateway/support/stage.ts";
import { missingPostgres, startPostgres } from "./postgres/postgres-server.ts";

const missing = missingPostgres() ?? (hasBubblewrap ? null : "bubblewrap is not installed");

it("shows nothing of itself, and arrives when it is sent to the other gateway", async (context) => {
  if (missing !== null) return context.skip(missing);
  const home = mkdtempSync(join(tmpdir(), "slu-"));
  await using server = await startPostgres();
  const { port } = server;
  const config = join(home, "config.json");
  const store = { type: "postgres", host: "127.0.0.1", port, database: "app", user: "app" };
  writeFileSync(config, JSON.stringify({ backend: "local", store }));
  const [a, b] = [
    await startGatewayProcess(home, { arguments: ["-c", config] }),
    await startGatewayProcess(home, { arguments: ["-c", config] }),
  ];
  const [atA, atB] = [new Caller(a.url, a.key), new Caller(b.url, b.key)];
  try {
    await sendWhole(atA, "file.txt", "before");
    const slow = await SlowUpload.begin(atA, "t1", "file.txt");
    await slow.write(PIECE);
    await untilHidden(atB, 1);
    const failure = slow.failure();
    await a.kill();
    expect(await failure).not.toBe(null);
    expect(await names(atB)).toEqual(["file.txt"]);
    expect(await read(atB, "file.txt")).toBe("before");
    await sendWhole(atB, "file.txt", `${PIECE}end`);
    expect(await read(atB, "file.txt")).toBe(`${PIECE}end`);
    // What the killed gateway was writing is gone.
    expect(await names(atB)).toEqual(["file.txt"]);
    await untilHidden(atB, 0);
  } finally {
    await atB.call("DELETE", "/v1/threads/t1?force=true");
    await b.stop();
    rmSync(home, { recursive: true, force: true });
  }
});

/** Unfinished files, which no client is shown. */
async function untilHidden(caller: Caller, count: number): Promise<void> {
  const command = "ls -A /mnt/user-data/uploads | grep -c '^[.]' || true";
  const hidden = async () =>
    (await caller.ask<{ stdout: string }>(200, "POST", "/v1/threads/t1/exec", { json: { command } })).stdout.trim();
  await expect.poll(hidden).toBe(String(count));
}
