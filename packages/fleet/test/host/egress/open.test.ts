/** `open`: public addresses and no others, whatever a program inside tries. */

import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { NetworkPolicy } from "../../../src/backend/network/policy.ts";
import { asOrdinaryUser, ordinaryNode } from "../../support/ordinary-user.ts";
import { OUTSIDE, OWN } from "./stage/addresses.ts";
import { proxyDirectory, runInside } from "./stage/inside.ts";
import { NetworkStage, type StagedProxy, stageProblem } from "./stage/stage.ts";

const problem = stageProblem("bwrap", "curl", "slirp4netns");
let directory: ReturnType<typeof proxyDirectory>;
const policy: NetworkPolicy = { mode: "open", allow: [], secrets: [] };
let stage: NetworkStage;
let proxy: StagedProxy;

beforeAll(async () => {
  if (problem !== null) return;
  directory = proxyDirectory();
  stage = await NetworkStage.open();
  proxy = await stage.proxy({
    policy,
    answers: {},
    at: { directory: directory.path, sandboxId: "open", way: "namespace" },
  });
});
afterAll(async () => {
  await proxy?.close();
  await stage?.close();
  directory?.remove();
});
beforeEach((context) => {
  if (problem !== null) context.skip(problem);
});

const inside = (script: string) => runInside(policy, directory.path, script, proxy.started.enter);
const curl = (...targets: string[]) =>
  inside(targets.map((target) => `curl -s -m 4 -o /dev/null -w '%{http_code} ' ${target}`).join("\n"));

describe("open", () => {
  it("reaches public addresses, by address and by name, on any port", async () => {
    expect((await curl(`http://${OUTSIDE.public}/`, "http://public.example/")).stdout).toBe("200 200 ");
    const echo = `exec 3<>/dev/tcp/${OUTSIDE.public}/7000; echo over >&3; head -1 <&3`;
    expect((await inside(`bash -c '${echo}'`)).stdout).toBe("over\n");
    const { bytesUp, bytesDown } = await proxy.stats();
    expect(Math.min(bytesUp, bytesDown)).toBeGreaterThan(500);
  });

  it("moves much, both ways", async () => {
    const script = `curl -sS -o /dev/null -w '%{size_download} ' 'http://${OUTSIDE.public}/download?bytes=50000000'; head -c 30000000 /dev/zero | curl -sS --data-binary @- http://${OUTSIDE.public}/ | grep -o '"bodyBytes":30000000'`;
    expect((await inside(script)).stdout).toBe('50000000 "bodyBytes":30000000\n');
  });

  it.each([
    ["private", OUTSIDE.private],
    ["metadata", OUTSIDE.metadata],
    ["carrier", OUTSIDE.carrier],
    ["the host's own", OWN.v4],
    ["the gateway's", "10.0.2.2"],
    ["the name server's", "10.0.2.3"],
    ["a name that leads to a private one", "private.example"],
    ["the host's IPv6", `[${OWN.v6}]`],
    ["private IPv6", `[${OUTSIDE.privateV6}]`],
    ["a mapped private one", `[::ffff:${OUTSIDE.private}]`],
  ])("does not reach %s", async (_, host) => {
    expect((await curl(`http://${host}/`, `http://${OUTSIDE.public}/`)).stdout).toBe("000 200 ");
  });

  it("says at once that it is not permitted", async () => {
    const { stderr } = await inside(`bash -c 'exec 3<>/dev/tcp/${OUTSIDE.private}/80'`);
    expect(stderr).toContain("Permission denied");
  });

  it("does not reach them by force either", async () => {
    const forced = `
import socket
for force in ((socket.SOL_SOCKET, 25, b"tap0"), (socket.SOL_SOCKET, 5, 1)):
  for address in ("${OUTSIDE.private}", "${OUTSIDE.metadata}", "${OWN.v4}"):
    s = socket.socket()
    s.setsockopt(*force)
    s.settimeout(2)
    try:
      s.connect((address, 80))
      print("reached", address)
    except OSError:
      pass
print("tried")`;
    expect((await inside(`/usr/bin/python3 -c '${forced}'`)).stdout).toBe("tried\n");
    const control = `/usr/bin/python3 -c 'import socket; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, 25, b"tap0"); s.connect(("${OUTSIDE.public}", 80)); print("reached")'`;
    expect((await inside(control)).stdout).toBe("reached\n");
  });

  it("gives the sandbox no rights over its network", async () => {
    const { stderr, stdout } = await inside(
      `ip route del prohibit 10.0.0.0/8; ip rule del priority 91; ip link set tap0 down; ip neigh add ${OUTSIDE.private} lladdr 52:55:0a:00:02:02 dev tap0; grep CapEff /proc/self/status`,
    );
    expect(stderr.match(/Operation not permitted/g)).toHaveLength(4);
    expect(stdout).toMatch(/CapEff:\t0+\n/);
  });

  it("closes addresses that the host is given later", async () => {
    const later = "93.184.216.77";
    await stage.run("ip", "address", "add", `${later}/32`, "dev", "cable");
    await expect.poll(async () => (await curl(`http://${later}/`)).stdout).toBe("000 ");
    expect(await stage.run("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", `http://${later}/`)).toBe("200");
    const routes = async () => (await inside("ip route")).stdout;
    await expect.poll(routes).toContain(`prohibit ${later}`);
    await stage.run("ip", "address", "del", `${later}/32`, "dev", "cable");
    await expect.poll(routes).not.toContain(`prohibit ${later}`);
  });

  it("leaves nothing when its process is killed", async () => {
    const place = proxyDirectory();
    const doomed = await stage.proxy({
      policy,
      answers: {},
      at: { directory: place.path, sandboxId: "doomed", way: "namespace" },
    });
    const children = childrenOf(doomed.started.pid);
    expect(children.map(nameOf).sort()).toEqual(["ip", "slirp4netns"]);
    process.kill(doomed.started.pid, "SIGKILL");
    await expect.poll(() => children.filter((pid) => isAlive(pid))).toEqual([]);
    place.remove();
  });

  it("carries for a sandbox that runs already", async () => {
    const sandbox = execFileSync("sh", ["-c", "unshare --net sleep 60 >/dev/null 2>&1 & echo $!"], {
      encoding: "utf8",
    });
    const pid = Number(sandbox);
    await expect.poll(() => readlinkSync(`/proc/${pid}/ns/net`)).not.toBe(readlinkSync("/proc/self/ns/net"));
    const place = proxyDirectory();
    const at = { directory: place.path, sandboxId: "joined", way: "namespace", namespace: { pid } } as const;
    const joined = await stage.proxy({ policy, answers: {}, at });
    const visit = (host: string) =>
      execFileSync(
        "sh",
        ["-c", `nsenter -t ${pid} -n curl -s -m 3 -o /dev/null -w '%{http_code}' http://${host}/ || true`],
        { encoding: "utf8" },
      );
    expect([visit(OUTSIDE.public), visit(OUTSIDE.private)]).toEqual(["200", "000"]);
    await joined.close();
    process.kill(pid);
    place.remove();
  });

  it("works for an ordinary user with access to /dev/net/tun, and is refused with the reason without it", async () => {
    // Run in the checkout.
    const script = `const { networkProblem } = await import("./packages/fleet/src/host/egress/network-problem.ts"); const { systemWorld } = await import("./packages/fleet/src/world/system-world.ts"); console.log(await networkProblem("open", systemWorld()));`;
    const flags = ["--conditions=sandlot-source", "--input-type=module", "-e", script];
    const tun = (mode: string) =>
      `mount -t tmpfs tmpfs /mnt && mknod -m ${mode} /mnt/tun c 10 200 && mount --bind /mnt/tun /dev/net/tun && exec "$@"`;
    const probe = ["sh", ...asOrdinaryUser(ordinaryNode(), ...flags)];
    const answer = async (mode: string) =>
      (await stage.run("unshare", "--mount", "sh", "-c", tun(mode), ...probe)).trim();
    expect(await answer("666")).toBe("null");
    expect(await answer("600")).toContain("/dev/net/tun");
  });
});

function childrenOf(pid: number): readonly number[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, "utf8").trim().split(" ").filter(Boolean).map(Number),
  );
}

function nameOf(pid: number): string {
  return readFileSync(`/proc/${pid}/comm`, "utf8").trim();
}

function isAlive(pid: number): boolean {
  return existsSync(`/proc/${pid}/exe`) && !/^State:\tZ/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
}
