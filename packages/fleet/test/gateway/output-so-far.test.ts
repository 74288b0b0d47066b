/** The output of a command so far, through a gateway with real sandboxes: of a background command and of a session. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandlotClient } from "@sandlot/client";
import type { OutputSoFar } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Fleet } from "../../src/fleet.ts";
import { type Gateway, startGateway } from "../../src/gateway/start-gateway.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { hasBubblewrap } from "./support/gateway-process.ts";
import { Caller } from "./support/stage.ts";

const KIBIBYTE = 1024;

describe.skipIf(!hasBubblewrap)("output so far (skipped where bubblewrap is not installed)", () => {
  const home = mkdtempSync(join(tmpdir(), "slo-"));
  let fleet: Fleet;
  let gateway: Gateway;
  let alice: Caller;
  let client: SandlotClient;

  beforeAll(async () => {
    ({ fleet } = await openFleetAndHost({ home, backend: "local" }));
    const settings = { port: 0, execResultMaxBytes: 64 * KIBIBYTE };
    gateway = await startGateway({ fleet, home, world: systemWorld(), settings });
    const { key } = await gateway.keys.create({ scope: "user", user: "alice" });
    alice = new Caller(gateway.url, key);
    client = new SandlotClient({ url: gateway.url, apiKey: key });
  }, 60_000);

  afterAll(async () => {
    await gateway.close();
    await fleet.close({ destroy: true });
    rmSync(home, { recursive: true });
  }, 60_000);

  const printed = async (path: string, bytes: number): Promise<OutputSoFar> => {
    let output: OutputSoFar | undefined;
    await expect
      .poll(
        async () => {
          output = (await (await alice.call("GET", path)).json()) as OutputSoFar;
          return output.stdout?.totalBytes;
        },
        { timeout: 30_000 },
      )
      .toBe(bytes);
    return output as OutputSoFar;
  };

  test("of a background command, while it runs and from an offset", async () => {
    const path = "/v1/threads/t/execs/job";
    await alice.ask(404, "GET", path);
    const command = "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two";
    await alice.ask(202, "POST", "/v1/threads/t/exec", { json: { command, background: true, execId: "job" } });
    expect(await printed(path, 4)).toMatchObject({ status: "running", exitCode: null, stdout: { text: "one\n" } });
    await alice.ask(200, "POST", "/v1/threads/t/exec", { json: { command: "touch go" } });
    await printed(path, 8);
    expect(await alice.ask(200, "GET", `${path}?stdoutOffset=4`)).toMatchObject({
      stdout: { text: "two\n", offset: 4, nextOffset: 8, totalBytes: 8 },
    });
    await alice.ask(404, "GET", "/v1/threads/t/execs/none");
    await alice.ask(422, "GET", `${path}?maxBytes=1`);
  });

  test("of a session's command, and never more than the gateway allows; the client reads all of it by offset", async () => {
    await using lease = await client.acquire({ thread: "s" });
    const { sessions } = lease.sandbox;
    const { sessionId } = await sessions.open();
    const path = `/v1/threads/s/sessions/${sessionId}/output`;
    await alice.ask(404, "GET", path);
    const count = 100 * KIBIBYTE;
    const running = sessions.exec(
      sessionId,
      `head -c ${count} /dev/zero | tr '\\0' a; until [ -e go ]; do sleep 0.05; done`,
    );
    const first = await printed(path, count);
    expect([first.status, first.stdout.text.length]).toEqual(["running", 64 * KIBIBYTE]);
    const rest = await sessions.output(sessionId, { from: { stdout: first.stdout.nextOffset } });
    expect([rest.stdout.text.length, rest.stdout.nextOffset]).toEqual([36 * KIBIBYTE, count]);
    await lease.sandbox.files.write("go", "");
    const { omitted } = await running;
    expect(omitted?.remedy).toContain(`/sessions/${sessionId}/output`);
    expect((await sessions.output(sessionId, { maxBytes: 10 })).stdout.text).toBe("a".repeat(10));
    await alice.ask(404, "GET", "/v1/threads/s/sessions/none/output");
    await alice.ask(404, "GET", "/v1/threads/missing/sessions/none/output");
  });
});
