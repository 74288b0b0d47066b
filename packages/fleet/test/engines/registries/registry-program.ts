/**
 * Runs in a network namespace of its own: registries on its loopback, a fleet, and the tools inside a sandbox as typed.
 * It prints one JSON document.
 */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FleetConfig } from "../../../src/config/fleet-config.ts";
import { createAuthority, issueCertificate } from "../../../src/host/egress/certificates/authority.ts";
import { openFleet } from "../../../src/open-fleet.ts";
import { ATTEMPTS } from "../../support/attempts.ts";
import { FILES, INDEX, PASSWORD, PORT, serveRegistries, TOKEN, writeToolConfiguration } from "./loopback-registries.ts";

const {
  fleet: engine,
  withCredentials,
  checksums,
  named,
  commands,
  attempts,
  mounts,
  script,
} = JSON.parse(process.argv[2] ?? "{}") as {
  /** The backend and its section. */
  fleet: Partial<FleetConfig>;
  checksums: "right" | "wrong";
  withCredentials: boolean;
  named: boolean;
  commands: readonly string[];
  attempts: boolean;
  /** Of a setup that has the network; the sandbox then has none. */
  script?: string;
  mounts: readonly { hostPath: string; sandboxPath: string }[];
};

const directory = mkdtempSync(join(tmpdir(), "slr-"));
const account = join(directory, "account");
mkdirSync(account, { recursive: true });

const hosts = [INDEX.host, FILES.host];
const authority = createAuthority(hosts, Date.now());
const authorityFile = join(directory, "authority.pem");
writeFileSync(authorityFile, authority.certificatePem);
const registries = await serveRegistries(directory, issueCertificate(authority, INDEX.host, Date.now(), hosts), {
  wantsCredentials: withCredentials,
  checksums,
});
const { checksumDatabase } = registries;
writeToolConfiguration(account, { authorityFile, withCredentials, checksumDatabase });
for (const name of Object.keys(process.env)) if (/^(?:PIP_|npm_|GO|CARGO_HOME)/i.test(name)) delete process.env[name];
process.env.HOME = account;

const mirrors = [
  { host: INDEX.host, addresses: [`${INDEX.address}/32`] },
  { host: FILES.host, addresses: [`${FILES.address}/32`] },
];
const network = {
  mode: "allowlist" as const,
  registries: ["pip", "npm", "cargo", "go"] as const,
  ...(named && { mirrors }),
};
const seen = mounts.map((mount) => ({ ...mount, readOnly: true }));
const blueprint =
  script === undefined
    ? { network: network as never, mounts: seen }
    : { setup: { script, network: network as never }, mounts: seen };
const config: FleetConfig = {
  ...engine,
  ...{ home: join(directory, "home"), blueprints: { default: blueprint }, acquireTimeoutMs: 600_000 },
};
const fleet = await openFleet(config);
const lease = await fleet.acquire({ thread: "t" });
const results: { command: string; exitCode: number | null; output: string }[] = [];
for (const command of commands) {
  const { exitCode, stdout, stderr } = await lease.sandbox.exec(["bash", "-c", command], { timeoutMs: 240_000 });
  results.push({ command, exitCode, output: `${stdout}\n${stderr}`.slice(-4_000) });
}
const forms = [PASSWORD, TOKEN, Buffer.from(`reader:${PASSWORD}`).toString("base64")];
const found: string[] = [];
for (const attempt of attempts ? ATTEMPTS.map((text) => text.replaceAll("sk-live", "tok-Kd83")) : []) {
  const { stdout, stderr } = await lease.sandbox.exec(["bash", "-c", attempt], { timeoutMs: 40_000 });
  if (forms.some((form) => `${stdout}\n${stderr}`.includes(form))) found.push(attempt);
}
await lease.release();
await fleet.destroy({ thread: "t" }, { purge: true, force: true });
await fleet.close({ destroy: true });
registries.close();
rmSync(directory, { recursive: true, force: true });
const leaks = registries.seen.filter(({ host, authorization }) => host === FILES.host && authorization !== null);
const lookups = registries.seen.filter(({ path }) => path.startsWith("/sums/lookup/")).length;
const writes = registries.seen.filter(({ method }) => method !== "GET" && method !== "HEAD");
process.stdout.write(
  `${JSON.stringify({ results, found, leaks, lookups, writes, requests: registries.seen.length, port: PORT })}\n`,
);
process.exit(0);
