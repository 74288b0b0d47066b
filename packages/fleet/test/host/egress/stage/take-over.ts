/**
 * A sandbox whose proxy is killed and taken over, run by any user. Prints the sandbox's view, as JSON. Everything stays
 * on the machine: no request is allowed.
 */

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NetworkPolicy } from "../../../../src/backend/network/policy.ts";
import type { Egress } from "../../../../src/host/egress/process/connection.ts";
import { startEgress } from "../../../../src/host/egress/process/start-egress.ts";
import { systemWorld } from "../../../../src/world/system-world.ts";

const world = systemWorld();
const directory = mkdtempSync(join(tmpdir(), "slt-"));
const policy: NetworkPolicy = { mode: "allowlist", allow: [{ host: "web.example.com", ports: [80] }], secrets: [] };
const start = (namespace?: { pid: number }): Promise<Egress> =>
  startEgress({ sandboxId: "s1", directory, policy, way: "namespace", namespace, world });

const first = await start();
// The sandbox makes a request on each command, and prints the result.
const script = `echo "links $(ip -o link | wc -l) $(grep CapEff /proc/self/status)"; while read line; do curl -sS -m 5 -o /dev/null -w '%{http_code}\\n' http://evil.example/ 2>/dev/null; done`;
const [program = "", ...args] = [
  ...(first.enter ?? []),
  ...["bwrap", "--unshare-all", "--share-net", "--unshare-user", "--uid", "1000", "--gid", "1000", "--disable-userns"],
  ...[
    "--die-with-parent",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
    "--tmpfs",
    "/tmp",
    "sh",
    "-c",
    script,
  ],
];
const sandbox = spawn(program, args, {
  stdio: ["pipe", "pipe", "inherit"],
  env: { PATH: process.env.PATH ?? "", ...first.network.environment },
});
const hear = async (): Promise<string> => String((await once(sandbox.stdout, "data"))[0]).trim();
const visit = (): Promise<string> => {
  sandbox.stdin.write("go\n");
  return hear();
};
const seen: Record<string, unknown> = { inside: await hear(), first: await visit() };
process.kill(first.identity.pid, "SIGKILL");
await first.closed;
seen.without = await visit();
const second = await start({ pid: sandbox.pid ?? 0 });
seen.second = await visit();
seen.stats = (await second.stats()).refused;

second.watch({ ...world.identity, pid: sandbox.pid ?? 0, startTime: startTimeOf(sandbox.pid ?? 0) });
second.detach();
sandbox.kill("SIGKILL");
await once(sandbox, "exit");
while (world.processLiveness(second.identity) !== "dead") await new Promise((resolve) => setTimeout(resolve, 50));
rmSync(directory, { recursive: true });
// Its children end with it, each in its own time; a process that remains after two seconds was left behind.
for (let round = 0; round < 40 && (round === 0 || seen.left !== ""); round += 1) {
  await new Promise((resolve) => setTimeout(resolve, 50));
  seen.left = spawnSync("pgrep", ["-s", String(second.identity.pid)]).stdout.toString();
}
console.log(JSON.stringify(seen));

function startTimeOf(pid: number): string {
  return readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ")[19] ?? "";
}
