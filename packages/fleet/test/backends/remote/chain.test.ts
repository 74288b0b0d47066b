/** Fleets over the whole chain: fleet, remote backend, gateway, local sandbox. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { remoteFindings } from "../../../src/backends/remote/doctor.ts";
import type { FleetConfig } from "../../../src/config/fleet-config.ts";
import { openFleet } from "../../../src/open-fleet.ts";
import { hasBubblewrap } from "../../gateway/support/gateway-process.ts";
import { removeDaemon } from "../local/local-harness.ts";
import { type InnerGateway, openInnerGateway, remoteConfig } from "./inner-gateway.ts";

const NOTE = "/mnt/user-data/workspace/note";

describe.skipIf(!hasBubblewrap)("over a gateway (skipped where bubblewrap is not installed)", () => {
  const place = mkdtempSync(join(tmpdir(), "sl-chain-"));
  let inner: InnerGateway;
  let keyFile: string;

  beforeAll(async () => {
    inner = await openInnerGateway();
    keyFile = join(place, "key");
    writeFileSync(keyFile, inner.key);
  }, 60_000);
  afterAll(async () => {
    await inner.close();
    await removeDaemon();
    rmSync(place, { recursive: true });
  }, 60_000);

  const configIn = (name: string, more: FleetConfig = {}): FleetConfig => ({
    ...{ home: join(place, name), backend: "remote", remote: { url: inner.gateway.url, keyFile } },
    housekeepingIntervalMs: 1_000,
    ...more,
  });
  const codeOf = (promise: Promise<unknown>) =>
    promise.then(
      () => "it resolved",
      (error: unknown) => (isSandlotError(error) ? error.code : String(error)),
    );
  const livingInside = async () => (await inner.fleet.list()).filter(({ state }) => state !== "stopping").length;

  it("a thread has commands, files and variables; its files outlive the sandbox, and a purge removes them", async () => {
    const blueprints = { default: { environment: { COLOUR: "deep blue" } } };
    await using fleet = await openFleet(configIn("one", { blueprints }));
    {
      await using lease = await fleet.acquire({ user: "ann", thread: "t1" });
      expect(lease.recovery.kind).toBe("empty");
      expect((await lease.sandbox.exec('echo "$COLOUR" > note; cat note')).stdout).toBe("deep blue\n");
      expect(await lease.sandbox.files.readText(NOTE)).toBe("deep blue\n");
      expect(await codeOf(lease.connect(80))).toBe("capability_missing");
    }
    expect(await fleet.destroy({ user: "ann", thread: "t1" })).toBe("stopped");
    expect(await livingInside()).toBe(0);
    {
      await using lease = await fleet.acquire({ user: "ann", thread: "t1", existing: true });
      expect(lease.recovery.kind).toBe("restored");
      expect(await lease.sandbox.files.readText(NOTE)).toBe("deep blue\n");
      // A purge runs no program of the thread, and opens what the thread has closed.
      const plant = 'mkdir -p "$HOME/.local/bin" && printf "#!/bin/sh\\n" > "$HOME/.local/bin/find"';
      const close = 'chmod 755 "$HOME/.local/bin/find" && mkdir closed && touch closed/f && chmod 300 closed';
      expect((await lease.sandbox.exec(`${plant} && ${close}`)).exitCode).toBe(0);
      // Another user's thread of the same name is another one.
      await using other = await fleet.acquire({ user: "bob", thread: "t1" });
      expect(await codeOf(other.sandbox.files.readText(NOTE))).toBe("file_not_found");
    }
    expect((await fleet.listThreads()).map(({ user, thread }) => `${user}/${thread}`)).toEqual(["ann/t1", "bob/t1"]);
    await fleet.destroy({ user: "ann", thread: "t1" }, { purge: true });
    expect(await codeOf(fleet.acquire({ user: "ann", thread: "t1", existing: true }))).toBe("thread_not_found");
    await using again = await fleet.acquire({ user: "ann", thread: "t1" });
    expect(again.recovery.kind).toBe("empty");
    expect(await codeOf(again.sandbox.files.readText(NOTE))).toBe("file_not_found");
    expect((await again.sandbox.exec('ls -A "$HOME"; ls -d closed')).stdout).toBe("");
    await fleet.close({ destroy: true });
    expect(await livingInside()).toBe(0);
  }, 120_000);

  it("a crash inside is a loss here: the next use has the files, and says what is gone", async () => {
    await using fleet = await openFleet(configIn("crash"));
    await using lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write(NOTE, "kept");
    await lease.sandbox.files.write("/tmp/gone", "x");
    const before = lease.generation;
    const [record] = await inner.fleet.list();
    await inner.fleet.destroy({ user: record?.user ?? "", thread: record?.thread ?? "" }, { force: true });
    await expect
      .poll(async () => (await lease.sandbox.exec("cat note").catch(() => null))?.stdout, { timeout: 60_000 })
      .toBe("kept");
    expect(lease.generation).toBeGreaterThan(before);
    expect(lease.recovery.kind).toBe("restored");
    expect(await codeOf(lease.sandbox.files.readText("/tmp/gone"))).toBe("file_not_found");
    await fleet.close({ destroy: true });
    expect(await livingInside()).toBe(0);
  }, 120_000);

  it("two fleets on one provisioner, with one key and the same threads, never touch each other's", async () => {
    const mine = await openFleet(configIn("mine"));
    const theirs = await openFleet(configIn("theirs"));
    const [my, their] = [await mine.acquire({ thread: "t1" }), await theirs.acquire({ thread: "t1" })];
    await my.sandbox.files.write(NOTE, "mine");
    await their.sandbox.files.write(NOTE, "theirs");
    expect(await my.sandbox.files.readText(NOTE)).toBe("mine");
    expect([await mine.audit(), await theirs.audit()]).toEqual([[], []]);
    // Long enough for several rounds of housekeeping of both.
    await new Promise((resolve) => setTimeout(resolve, 4_000));
    await mine.close({ destroy: true, drainMs: 0 });
    expect(await their.sandbox.files.readText(NOTE)).toBe("theirs");
    expect(await livingInside()).toBe(1);
    await theirs.close({ destroy: true, drainMs: 0 });
    expect(await livingInside()).toBe(0);
  }, 120_000);

  it("a fleet that was closed finds its sandbox again, with what runs in it", async () => {
    const config = configIn("again");
    {
      await using fleet = await openFleet(config);
      await using lease = await fleet.acquire({ thread: "t1" });
      await lease.sandbox.exec("nohup sleep 300 > /dev/null 2>&1 & echo $! > /tmp/pid");
    }
    await using fleet = await openFleet(config);
    await using lease = await fleet.acquire({ thread: "t1" });
    expect(lease.recovery.kind).toBe("same");
    expect((await lease.sandbox.exec("kill -0 $(cat /tmp/pid) && echo runs")).stdout).toBe("runs\n");
    await fleet.close({ destroy: true });
  }, 120_000);

  it("refuses what it cannot pass on, and an address that would tell the key to everybody", async () => {
    const refused = async (more: FleetConfig) => codeOf(openFleet(configIn("refused", more)));
    expect(await refused({ pool: { default: 1 } })).toBe("capability_missing");
    expect(await refused({ blueprints: { default: { network: { mode: "open" } } } })).toBe("capability_missing");
    expect(await refused({ blueprints: { default: { limits: { memoryBytes: "1GiB" } } } })).toBe("capability_missing");
    expect(await refused({ skills: { hostPath: place } })).toBe("capability_missing");
    expect(await refused({ remote: {} })).toBe("config_invalid");
    expect(await refused({ remote: { url: "http://provisioner.example:8002" } })).toBe("config_invalid");
    expect(await refused({ remote: { url: inner.gateway.url, keyFile: join(place, "none") } })).toBe("config_invalid");
    expect(await refused({ remote: { url: inner.gateway.url } })).toBe("engine_unavailable");
  }, 60_000);

  it("the doctor says what is wrong, and how to fix it", async () => {
    const trial = async () => {};
    const findings = (more: object) => remoteFindings(remoteConfig(inner, more), { environment: {}, trial });
    const [ok, made, isolation] = await findings({ keyFile });
    expect([ok?.status, made?.status, isolation?.status]).toEqual(["ok", "ok", "warn"]);
    const [noKey] = await findings({});
    expect(noKey).toMatchObject({ status: "fail", fix: expect.stringContaining("sandlot keys create") });
    const [away] = await findings({ url: "http://127.0.0.1:1", keyFile });
    expect(away).toMatchObject({ status: "fail", fix: expect.stringContaining("remote.url") });
    const [plain] = await findings({ url: "http://provisioner.example" });
    expect(plain).toMatchObject({ status: "fail", detail: expect.stringContaining("in the clear") });
  }, 60_000);
});
