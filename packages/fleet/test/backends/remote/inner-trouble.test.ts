/** Fleets over a gateway that is restarted, that falls silent, and whose sandboxes are killed. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { refOf } from "../../../src/backends/remote/object-id.ts";
import type { FleetConfig } from "../../../src/config/fleet-config.ts";
import type { Fleet } from "../../../src/fleet.ts";
import { openFleet } from "../../../src/open-fleet.ts";
import { TcpProxy } from "../../engines/redis/tcp-proxy.ts";
import { hasBubblewrap } from "../../gateway/support/gateway-process.ts";
import { removeDaemon } from "../local/local-harness.ts";
import { type InnerGateway, openInnerGateway } from "./inner-gateway.ts";

const NOTE = "/mnt/user-data/workspace/note";
const PATIENT = { timeout: 60_000 };

describe.skipIf(!hasBubblewrap)("a gateway in trouble (skipped where bubblewrap is not installed)", () => {
  const place = mkdtempSync(join(tmpdir(), "sl-trouble-"));
  const keyFile = join(place, "key");
  let inner: InnerGateway;
  let proxy: TcpProxy;
  let fleet: Fleet;
  let made = 0;

  beforeAll(async () => {
    inner = await openInnerGateway();
    proxy = await TcpProxy.to(Number(new URL(inner.gateway.url).port));
    writeFileSync(keyFile, inner.key);
  }, 60_000);
  afterAll(async () => {
    await proxy.close();
    await inner.close();
    await removeDaemon();
    rmSync(place, { recursive: true });
  }, 60_000);
  beforeEach(async () => {
    const { host, port } = proxy.endpoint;
    const config: FleetConfig = {
      ...{ home: join(place, `home-${made++}`), backend: "remote", housekeepingIntervalMs: 500 },
      remote: { url: `http://${host}:${port}`, keyFile },
    };
    fleet = await openFleet(config);
  });
  afterEach(async () => {
    proxy.restore();
    await fleet.close({ destroy: true, drainMs: 0 });
    await expect.poll(living, PATIENT).toBe(0);
  }, 120_000);

  const living = async () => (await inner.fleet.list()).filter(({ state }) => state !== "stopping").length;
  const codeOf = (promise: Promise<unknown>) =>
    promise.then(
      () => "it resolved",
      (error: unknown) => (isSandlotError(error) ? error.code : String(error)),
    );

  it("restarted: the same sandbox goes on, with its processes, under the same lease", async () => {
    await using lease = await fleet.acquire({ thread: "t1" });
    const lost: string[] = [];
    lease.onLost(({ reason }) => void lost.push(reason));
    await lease.sandbox.exec("nohup sleep 300 > /dev/null 2>&1 & echo $! > /tmp/pid");
    const generation = lease.generation;
    await inner.restart();
    const runs = () => lease.sandbox.exec("kill -0 $(cat /tmp/pid) && echo runs").then(({ stdout }) => stdout, String);
    await expect.poll(runs, PATIENT).toBe("runs\n");
    // Several looks at the list.
    await new Promise((resolve) => setTimeout(resolve, 5_000));
    expect([await runs(), lease.generation, lost, await fleet.audit()]).toEqual(["runs\n", generation, [], []]);
    expect(await living()).toBe(1);
  }, 120_000);

  it("silent: every call has a deadline and a typed error, nothing is taken for dead, and all goes on after it", async () => {
    await using lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write(NOTE, "kept");
    const { sandboxId } = (await fleet.find({ thread: "t1" })) ?? {};
    proxy.freeze();
    expect(await codeOf(fleet.acquire({ thread: "t2", timeoutMs: 2_000 }))).toBe("acquire_timeout");
    expect(await codeOf(fleet.acquire({ thread: "t3", signal: AbortSignal.timeout(500) }))).toMatch(/Timeout|abort/i);
    expect(await codeOf(fleet.audit({ signal: AbortSignal.timeout(1_000) }))).toMatch(
      /Timeout|abort|engine_unavailable/i,
    );
    // Longer than two looks at the list.
    await new Promise((resolve) => setTimeout(resolve, 5_000));
    expect(await fleet.find({ thread: "t1" })).toMatchObject({ sandboxId, state: "leased" });
    proxy.restore();
    proxy.cut();
    await expect.poll(() => lease.sandbox.files.readText(NOTE).catch(String), PATIENT).toBe("kept");
    expect(await fleet.find({ thread: "t1" })).toMatchObject({ sandboxId, state: "leased" });
    await using second = await fleet.acquire({ thread: "t2" });
    expect((await second.sandbox.exec("echo here")).stdout).toBe("here\n");
  }, 120_000);

  it("silent in an end: it is `stopping` until the gateway answers, and then gone", async () => {
    await (await fleet.acquire({ thread: "t1" })).release();
    proxy.freeze();
    expect(await fleet.destroy({ thread: "t1" }, { timeoutMs: 1_000 })).toBe("stopping");
    expect(await living()).toBe(1);
    proxy.restore();
    proxy.cut();
    await expect.poll(async () => [await fleet.find({ thread: "t1" }), await living()], PATIENT).toEqual([null, 0]);
  }, 120_000);

  it("whose sandbox is killed: the lease is told, and the next use has the files", async () => {
    await using lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write(NOTE, "kept");
    const lost: string[] = [];
    lease.onLost(({ reason }) => void lost.push(reason));
    const [listed] = await shownByGateway();
    await inner.kill(refOf(listed?.sandbox_id ?? ""));
    await expect.poll(() => lost, PATIENT).toEqual(["crashed"]);
    await expect.poll(() => lease.sandbox.files.readText(NOTE).catch(String), PATIENT).toBe("kept");
    expect(lease.recovery).toMatchObject({ kind: "restored" });
  }, 120_000);

  async function shownByGateway(): Promise<readonly { readonly sandbox_id: string }[]> {
    const response = await fetch(`${inner.gateway.url}/api/sandboxes`, { headers: { "x-api-key": inner.key } });
    return ((await response.json()) as { sandboxes: { sandbox_id: string }[] }).sandboxes;
  }
});
