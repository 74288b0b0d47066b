/** git's own HTTP backend over TLS, and a sandbox that clones from it and pushes to it with a bound secret. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createAuthority, issueCertificate } from "../../../src/host/egress/certificates/authority.ts";
import { openFleet } from "../../../src/open-fleet.ts";
import { ATTEMPTS } from "../../support/attempts.ts";
import { serveGit } from "./git-backend.ts";
import { INDEX, PASSWORD, PORT } from "./loopback-registries.ts";

const { kind, commands, attempts } = JSON.parse(process.argv[2] ?? "{}") as {
  kind: "basic" | "bearer" | "wrong";
  commands: readonly string[];
  attempts: boolean;
};

const directory = mkdtempSync(join(tmpdir(), "slg-"));
const authority = createAuthority([INDEX.host], Date.now());
process.env.NODE_EXTRA_CA_CERTS = join(directory, "authority.pem");
writeFileSync(process.env.NODE_EXTRA_CA_CERTS, authority.certificatePem);
const keys = issueCertificate(authority, INDEX.host, Date.now());
const repository = join(directory, "repositories", "private.git");
execFileSync("git", ["init", "-q", "--bare", "-b", "main", repository]);
execFileSync("git", ["-C", repository, "config", "http.receivepack", "true"]);
const right = kind === "bearer" ? `Bearer ${PASSWORD}` : `Basic ${Buffer.from(`dev:${PASSWORD}`).toString("base64")}`;

const server = createServer({ cert: keys.certificatePem, key: keys.keyPem }, (request, response) => {
  if (request.headers.authorization !== right) {
    request.resume();
    response.writeHead(401, { "www-authenticate": 'Basic realm="git"' }).end("who are you?");
    return;
  }
  serveGit(join(directory, "repositories"), request, response);
});
await new Promise<void>((resolve) => server.listen(PORT, "0.0.0.0", resolve));

const value = kind === "wrong" ? "this-is-not-the-password" : PASSWORD;
const secret = { name: "forge", host: INDEX.host, header: "Authorization", value, ports: [PORT] };
const bound = kind === "bearer" ? { ...secret, prefix: "Bearer " } : { ...secret, username: "dev" };
const allow = [{ host: INDEX.host, ports: [PORT], addresses: [`${INDEX.address}/32`] }];
const fleet = await openFleet({
  home: join(directory, "home"),
  backend: "local",
  blueprints: { default: { network: { mode: "allowlist", allow, secrets: [bound] } } },
});
const lease = await fleet.acquire({ thread: "t" });
const results: { exitCode: number | null; output: string }[] = [];
for (const command of commands) {
  const { exitCode, stdout, stderr } = await lease.sandbox.exec(["bash", "-c", command], { timeoutMs: 300_000 });
  results.push({ exitCode, output: `${stdout}\n${stderr}`.slice(-4_000) });
}
const forms = [PASSWORD, Buffer.from(`dev:${PASSWORD}`).toString("base64")];
const found: string[] = [];
for (const attempt of attempts ? ATTEMPTS.map((text) => text.replaceAll("sk-live", PASSWORD.slice(0, 6))) : []) {
  const { stdout, stderr } = await lease.sandbox.exec(["bash", "-c", attempt], { timeoutMs: 40_000 });
  if (forms.some((form) => `${stdout}\n${stderr}`.includes(form))) found.push(attempt);
}
const proxyPeakBytes = peakOfProxy();
await lease.release();
await fleet.destroy({ thread: "t" }, { purge: true, force: true });
await fleet.close({ destroy: true });
server.close();
const sizeBytes = Number(execFileSync("du", ["-sb", repository], { encoding: "utf8" }).split("\t")[0]);
rmSync(directory, { recursive: true, force: true });
process.stdout.write(`${JSON.stringify({ results, found, proxyPeakBytes, sizeBytes })}\n`);
process.exit(0);

/** The most memory that the proxy's process, a child of this one, has had. */
function peakOfProxy(): number {
  const peaks = readdirSync("/proc").flatMap((pid) => {
    try {
      const status = readFileSync(`/proc/${pid}/status`, "utf8");
      const isProxy = /^Name:\s*sandlot-egress/m.test(status) && status.includes(`PPid:\t${process.pid}\n`);
      return isProxy ? [Number(/^VmHWM:\s*(\d+)/m.exec(status)?.[1]) * 1_024] : [];
    } catch {
      return [];
    }
  });
  return Math.max(0, ...peaks);
}
