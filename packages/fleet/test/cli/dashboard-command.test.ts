/** `sandlot dashboard`, the link that `serve` prints first, and what a gateway tells its dashboard about itself. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandlotClient } from "@sandlot/client";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { gatewayAbout } from "../../src/cli/gateway-about.ts";
import { loadSettings } from "../../src/cli/load-settings.ts";
import { resolveGatewaySettings } from "../../src/config/gateway-settings.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import { serve } from "../../src/gateway/index.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { runHere } from "./run-here.ts";

const root = mkdtempSync(join(tmpdir(), "sldc-"));
const home = join(root, "home");
let served: Awaited<ReturnType<typeof serve>>;

beforeAll(async () => {
  const open = () => openFleetAndHost({ home, backend: "memory" });
  served = await serve({ openFleet: open, home, gateway: { port: 0 }, world: systemWorld() });
});
afterAll(async () => {
  await served.close({ destroy: true });
  rmSync(root, { recursive: true });
});

const run = (args: readonly string[], more: Record<string, string> = {}, until?: RegExp) =>
  runHere(["dashboard", ...args], { SANDLOT_HOME: home, HOME: root, ...more }, until);

/** Whose session the link begins. */
async function redeemed(link: string): Promise<{ readonly status: number; readonly scope?: string | undefined }> {
  const { origin, hash } = new URL(link);
  const response = await fetch(`${origin}/v1/dashboard/links/use`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-sandlot-dashboard": "1" },
    body: JSON.stringify({ token: hash.replace("#link=", "") }),
  });
  const { key } = (await response.json()) as { key?: { scope: string } };
  return { status: response.status, scope: key?.scope };
}

it("prints a link of the gateway of its home, which works once, with the rights of the operator's key", async () => {
  const { code, stdout } = await run(["--no-open"]);
  expect(code).toBe(0);
  expect(stdout).toMatch(new RegExp(`^${served.url}/#link=[\\w.-]+\\n$`));
  expect(await redeemed(stdout.trim())).toEqual({ status: 201, scope: "operator" });
  expect((await redeemed(stdout.trim())).status).toBe(401);
});

it("asks a named gateway with the key of the environment", async () => {
  const { key } = await served.keys.create({ scope: "user", user: "alice" });
  const { stdout } = await run(["--url", served.url, "--json"], { SANDLOT_API_KEY: key, HOME: join(root, "none") });
  expect(await redeemed((JSON.parse(stdout) as { url: string }).url)).toEqual({ status: 201, scope: "user" });
});

it("says how to start a gateway where none runs", async () => {
  const { code, stderr } = await run([], { SANDLOT_HOME: join(root, "empty") });
  expect(code).toBe(1);
  expect(stderr).toContain("sandlot serve");
});

it("is what serve prints first", async () => {
  const other = { SANDLOT_HOME: join(root, "served"), SANDLOT_BACKEND: "memory", HOME: root };
  const { stdout } = await runHere(["serve", "--port", "0"], other, /listens at/);
  expect(stdout).toMatch(/^Dashboard, .*\n\n {2}http:\/\/127\.0\.0\.1:\d+\/#link=[\w.-]+\n/);
});

describe("what a gateway tells of its configuration", () => {
  it("has the origin of every value and no secret", async () => {
    const file = join(root, "sandlot.yaml");
    writeFileSync(
      file,
      `home: ${join(root, "about")}
backend: memory
store:
  type: postgres
  url: postgres://fleet@db.example:5432/sandlot
limits:
  max: 7
blueprints:
  default:
    environment:
      TOKEN: hunter2
gateway:
  port: 9000
`,
    );
    const environment = {
      SANDLOT_PORT: "9001",
      SANDLOT_PREVIEW_DOMAIN: "preview.example",
      SANDLOT_POSTGRES_PASSWORD: "hunter2",
    };
    const { config, gateway } = await loadSettings(file, environment);
    const settings = resolveSettings(config, environment);
    // The control: there is something to hide.
    expect(JSON.stringify(settings)).toContain("hunter2");
    const about = await gatewayAbout({
      ...{ named: file, environment, settings },
      gateway: resolveGatewaySettings({ ...gateway, host: "127.0.0.2" }),
      flags: new Map([["gateway.host", "--host"]]),
    });
    expect(about.limit.max).toBe(7);
    const { values } = about.configuration();
    const shown = Object.fromEntries(values.map(({ path, value, origin }) => [path, [value, origin]]));
    expect(shown["limits.max"]).toEqual(["7", "file"]);
    expect(shown["limits.maxPerUser"]?.[1]).toBe("default");
    expect(shown["gateway.port"]).toEqual(["9001", "SANDLOT_PORT"]);
    expect(shown["gateway.host"]).toEqual(['"127.0.0.2"', "--host"]);
    expect(shown["gateway.preview.domain"]).toEqual(['"preview.example"', "SANDLOT_PREVIEW_DOMAIN"]);
    expect(JSON.stringify(values)).not.toContain("hunter2");
    expect(JSON.stringify(values)).toContain("db.example");
  });
});

it("answers a gateway that was started by a program without these facts", async () => {
  const key = (await served.keys.create({ scope: "operator" })).key;
  expect((await new SandlotClient({ url: served.url, apiKey: key }).key()).scope).toBe("operator");
  const response = await fetch(`${served.url}/v1/dashboard/configuration`, { headers: { "x-api-key": key } });
  expect(await response.json()).toMatchObject({ file: null, values: null });
});
