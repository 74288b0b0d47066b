/** The configuration of a pod's daemon: what it says for each network mode, and what it never says. */

import type { Generation, SandboxId, Token } from "@sandlot/contract";
import { expect, test } from "vitest";
import type { CreateSpec } from "../../../src/backend/backend.ts";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { kubernetesConfig, kubernetesSchema } from "../../../src/backends/kubernetes/config.ts";
import { daemonConfig } from "../../../src/backends/kubernetes/daemon-config.ts";
import type { KubernetesSettings } from "../../../src/backends/kubernetes/settings.ts";
import { FleetKeys } from "../../../src/sandboxd/fleet-keys.ts";

const KEYS = FleetKeys.parse(`k1:${Buffer.alloc(32, 1).toString("base64")}`, "keys");
const SECRET = {
  name: "api",
  host: "api.example.com",
  header: "authorization",
  value: "the-value-of-it",
  via: "https",
};
const ALLOW = [{ host: "api.example.com", ports: [443] }];

function configFor(network: Blueprint["network"]) {
  const labels = { sandboxId: "s1" as SandboxId, blueprintHash: "b1", generation: 7 as Generation };
  const blueprint = { environment: {}, limits: {}, mounts: [], network };
  const spec = { labels, token: "t" as Token, blueprint } as unknown as CreateSpec;
  const kubernetes = kubernetesConfig(kubernetesSchema.parse({ egress: { host: "10.96.0.9" } }));
  const settings = { orphanTimeoutMs: 1_000, kubernetes } as unknown as KubernetesSettings;
  return daemonConfig({ spec, keys: KEYS, settings, nowMs: 1_700_000_000_000 });
}

test("without a network it proves its policy, and leads nowhere", () => {
  const config = configFor({ mode: "none", allow: [] });
  expect(config).toMatchObject({ canary: { host: "10.96.0.9", port: 3_130 }, listen: { port: 7_411 } });
  expect(config.forward).toBeUndefined();
  expect(config.environment).not.toHaveProperty("https_proxy");
});

test("with an allow list commands know the proxy, and the daemon forwards to it with the sandbox's own key", () => {
  const config = configFor({ mode: "allowlist", allow: ALLOW });
  expect(config.environment).toMatchObject({ https_proxy: "http://127.0.0.1:3128", SANDLOT_NETWORK: "allowlist" });
  const owner = { sandboxId: "s1", blueprintHash: "b1" };
  const to = { host: "10.96.0.9", port: 3_129, psk: KEYS.issue("egress", owner) };
  expect(config.forward).toEqual({ port: 3_128, to });
  expect(config.trust).toBeUndefined();
});

test("with a bound secret it trusts the egress, and never holds the value", () => {
  const config = configFor({ mode: "allowlist", allow: ALLOW, secrets: [SECRET] as never });
  expect(config.trust?.certificatePem).toContain("BEGIN CERTIFICATE");
  expect(config.environment?.SSL_CERT_FILE).toBe(`${config.trust?.directory}/ca-bundle.pem`);
  expect(JSON.stringify(config)).not.toContain(SECRET.value);
});
