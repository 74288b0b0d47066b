/**
 * The escape list of the local backend, tried in a pod: the same probe makes every attempt twice, on the node without
 * protection and inside. Results that differ in a pod for a reason are listed here.
 */

import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect } from "vitest";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import { type Aims, attempts } from "../../backends/local/escape/attempts.ts";
import { Field, inside, outside } from "../../backends/local/escape/field.ts";
import { onCluster } from "./cluster-tools.ts";
import { blueprint, CLUSTER, openHarness, sharedClaim } from "./kubernetes-harness.ts";

/** The image's own files exist, and belong to the image. */
const OWN_FILES = "the image has its own";
/** The runtime's filter allows them. The root is read-only, and volumes belong to the sandbox alone. */
const SPECIAL_BITS = {
  inside: "ok",
  because: "no_new_privs makes the file useless, and no other account runs it",
} as const;
/** A pod cannot ask for more masks than its runtime's own. */
const KERNEL = { inside: /^(ok|none)$/, because: "the runtime shows these facts of the node's kernel" } as const;
const DIFFERENT: Readonly<Record<string, { readonly inside: string | RegExp; readonly because: string }>> = {
  "the host's password hashes": { inside: "EACCES", because: `${OWN_FILES}, which only root may read` },
  "the host's logs": { inside: "ok", because: OWN_FILES },
  "the host's root home": { inside: "EACCES", because: `${OWN_FILES}, which only root may enter` },
  "what is in /run": { inside: /^((adduser|lock|mount|sandlot|shm|utmp|systemd|secrets)( |$))+$/, because: OWN_FILES },
  "a packet socket": {
    inside: "EPERM",
    because: "the runtime's filter lets the kernel decide, which asks for a capability",
  },
  "a setuid program by chmod": SPECIAL_BITS,
  "a setgid program by chmod": SPECIAL_BITS,
  "a setuid program through its descriptor": SPECIAL_BITS,
  "a setuid program when it is made": SPECIAL_BITS,
  "the same through another process's root": {
    inside: "ENOENT",
    because: "the parent belongs to the same pod, and has its root",
  },
  "an address beyond the host": {
    inside: "ok",
    because: "a pod has a route; its policy drops packets (network.test.ts)",
  },
  "interfaces of the host": { inside: "ok", because: "it is the pod's own" },
  "a socket to the hypervisor": {
    inside: /^(ok|EAFNOSUPPORT|EPERM)$/,
    because: "older runtimes do not filter the family",
  },
  "the kernel's command line": KERNEL,
  "the kernel's configuration": KERNEL,
  "the kernel's memory map": KERNEL,
  "the host's control groups": { inside: "ok", because: "the runtime shows the container's own groups, read-only" },
};

onCluster("escapes from a pod are answered with refusals, one by one", null, async () => {
  const harness = await openHarness({ workspaces: sharedClaim });
  const directory = mkdtempSync(join(tmpdir(), "sl-pod-escape-"));
  const servers: Server[] = [];
  chmodSync(directory, 0o755);
  writeFileSync(join(directory, "secret"), "of the host", { mode: 0o644 });
  const victimName = `victim-${process.pid}-of-the-host`;
  const victim = spawn("/bin/sleep", ["300"], { argv0: victimName, env: { SECRET: victimName }, stdio: "ignore" });
  process.env.SANDLOT_ESCAPE_TEST = "a-secret-of-the-fleet";
  const stage = new BackendStage(harness, blueprint, expect);
  try {
    const sandbox = await stage.sandbox();
    const key = stage.newKey();
    const other = await stage.sandbox(key);
    await other.files.write("/mnt/user-data/workspace/another-threads-file", "of another thread");
    const { root = "" } = harness.settings().kubernetes.workspaces;
    const thread = join(root, harness.fleetId, "t", threadKeyOf(key.user, key.thread));
    const abstractName = `sandlot-escape-${process.pid}`;
    await listen(servers, `\0${abstractName}`);
    symlinkSync(join(dirname(CLUSTER ?? ""), "../node1/containerd.sock"), join(directory, "runtime"));
    const aims: Aims = {
      field: Object.assign(Object.create(Field.prototype) as Field, { directory, harness: { home: root } }),
      otherUserData: join(thread, readdirSync(thread).find((name) => name.startsWith("w.")) ?? ""),
      // The runtime's own socket owns the node.
      otherSocket: join(directory, "runtime"),
      ...{ victimPid: victim.pid ?? 0, victimName, fleetSecret: "a-secret-of-the-fleet", abstractName },
      port: await listen(servers),
    };
    expect(existsSync(aims.otherSocket)).toBe(true);
    expect(existsSync(join(aims.otherUserData, "workspace/another-threads-file"))).toBe(true);
    const failures: string[] = [];
    // The kernel's addresses are hidden from it, where the node shows the map at all.
    const addresses = await sandbox.exec(
      "head -1000 /proc/kallsyms | cut -d ' ' -f 1 | sort -u | grep -v '^0*$' | wc -l",
    );
    expect(addresses.stdout.trim()).toBe("0");
    for (const [name, attempt] of Object.entries(attempts(aims))) {
      const wanted = DIFFERENT[name]?.inside ?? attempt.inside;
      const without = await outside(attempt.perl, attempt.prefix);
      const within = await inside(sandbox, attempt.perl);
      if (!fits(without, attempt.outside ?? "ok")) failures.push(`${name}, the control: ${without}`);
      if (!fits(within, wanted)) failures.push(`${name}: ${within} instead of ${wanted}`);
    }
    expect(failures).toEqual([]);
    // No token of the cluster, no key of the fleet.
    const seen = await sandbox.exec(
      "ls /var/run/secrets/kubernetes.io 2>&1; ls /run/sandlot/config; id -u; grep Cap /proc/self/status",
    );
    expect(seen.stdout).toMatch(/No such file.*\ndaemon.json\n10001\n/);
    expect(seen.stdout).toMatch(/CapBnd:\t0+\n/);
    const config = (await sandbox.exec("cat /run/sandlot/config/daemon.json")).stdout;
    expect(config).toContain("tokenHash");
    expect(config).not.toContain('"token"');
  } finally {
    delete process.env.SANDLOT_ESCAPE_TEST;
    victim.kill("SIGKILL");
    for (const server of servers) server.close();
    rmSync(directory, { recursive: true, force: true });
    await stage.clear();
    await harness.dispose();
  }
});

function fits(answer: string, wanted: string | RegExp): boolean {
  return typeof wanted === "string" ? answer === wanted : wanted.test(answer);
}

async function listen(servers: Server[], path?: string): Promise<number> {
  const server = createServer((socket) => socket.end());
  servers.push(server);
  await new Promise<void>((resolve) => {
    if (path === undefined) server.listen(0, "127.0.0.1", resolve);
    else server.listen(path, resolve);
  });
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}
