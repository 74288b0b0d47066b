import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Fleet, Lease } from "../../../src/fleet.ts";
import { openFleet } from "../../../src/open-fleet.ts";
import { ATTEMPTS } from "../../support/attempts.ts";

/** Long and odd enough to be unique to the secret. */
const VALUE = "sk-live-7Qz9vX2mLp4Rt8Wc1Yb6Nd3Hf5Jg0KsE";
const FORMS = [
  VALUE,
  VALUE.slice(8, 28),
  Buffer.from(VALUE).toString("base64").slice(4, 32),
  Buffer.from(VALUE).toString("hex").slice(8, 48),
  [...VALUE].reverse().join(""),
];

const hasBubblewrap = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "bwrap")));

describe.skipIf(!hasBubblewrap)("a bound secret (skipped where bubblewrap is not installed)", () => {
  const home = mkdtempSync(join(tmpdir(), "slb-"));
  let fleet: Fleet;
  let lease: Lease;

  beforeAll(async () => {
    const secret = { name: "api", host: "api.example.com", header: "Authorization", prefix: "Bearer ", value: VALUE };
    const allow = [{ host: "api.example.com", ports: [80, 443] }];
    const network = { mode: "allowlist", allow, secrets: [secret] } as const;
    fleet = await openFleet({ home, backend: "local", blueprints: { default: { network } } });
    lease = await fleet.acquire({ thread: "secretive" });
  }, 60_000);

  afterAll(async () => {
    await lease?.release();
    await fleet?.destroy({ thread: "secretive" }, { purge: true, force: true });
    await fleet?.close({ destroy: true });
    rmSync(home, { recursive: true, force: true });
  }, 60_000);

  it("there are fifty attempts", () => {
    expect(new Set(ATTEMPTS).size).toBe(50);
  });

  it.each(ATTEMPTS)(
    "is not found by: %s",
    async (attempt) => {
      const { stdout, stderr } = await lease.sandbox.exec(["bash", "-c", attempt], { timeoutMs: 40_000 });
      for (const form of FORMS) expect(`${stdout}\n${stderr}`).not.toContain(form);
    },
    60_000,
  );

  it("would be found by the first ones if it were in the environment of a command", async () => {
    for (const attempt of ATTEMPTS.slice(0, 7)) {
      const { stdout } = await lease.sandbox.exec(["bash", "-c", attempt], { env: { API_KEY: VALUE } });
      if (!attempt.includes("/proc/1/")) expect(stdout).toContain(VALUE);
    }
  }, 60_000);

  it("a refusal is an event that names the sandbox", async () => {
    const heard = new Promise((resolve) => fleet.events.on(resolve, "egress-refused"));
    const { stdout } = await lease.sandbox.exec("curl -s -m 10 http://elsewhere.example.org/");
    expect(stdout).toContain("elsewhere.example.org");
    expect(await heard).toMatchObject({ host: "elsewhere.example.org", port: 80, thread: "secretive" });
  }, 60_000);
});
