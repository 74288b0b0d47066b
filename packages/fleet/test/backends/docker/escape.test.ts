/**
 * The escape list of the local backend, tried in a container: the same probe makes every attempt twice, on the host
 * without protection and inside. Results that differ in a container for a reason are listed here.
 */

import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { expectClosedDaemon } from "../closed-daemon.ts";
import { type Aims, attempts } from "../local/escape/attempts.ts";
import { Field, inside, outside } from "../local/escape/field.ts";
import { describeOnEngine } from "./on-engine.ts";

/** The image's own files exist, and belong to the image. */
const OWN_FILES = "the image has its own";
/**
 * The engine's filter allows them. No other account reaches the fleet's directory, and root's directories are mounted
 * read-only.
 */
const SPECIAL_BITS = { inside: "ok", because: "the file is of no use to another account of the host" } as const;
const DIFFERENT: Readonly<Record<string, { readonly inside: string | RegExp; readonly because: string }>> = {
  "the host's password hashes": { inside: "EACCES", because: `${OWN_FILES}, which only root may read` },
  "the host's logs": { inside: "ok", because: OWN_FILES },
  "the host's root home": { inside: "EACCES", because: `${OWN_FILES}, which only root may enter` },
  "what is in /run": { inside: /^((adduser|lock|mount|sandlot|shm|utmp|systemd)( |$))+$/, because: OWN_FILES },
  "a packet socket": {
    inside: "EPERM",
    because: "the engine's filter lets the kernel decide, which asks for a capability",
  },
  "a setuid program by chmod": SPECIAL_BITS,
  "a setgid program by chmod": SPECIAL_BITS,
  "a setuid program through its descriptor": SPECIAL_BITS,
  "a setuid program when it is made": SPECIAL_BITS,
  "the host's control groups": { inside: "ok", because: "the engine shows the container's own groups, read-only" },
};

/** Only engines from 23 on (API 1.42) refuse these in their own filter. */
const HYPERVISOR = "a socket to the hypervisor";
const FILTERED_SINCE_API = 42;

describeOnEngine("escapes from a container", (onEngine, { docker }) => {
  it("find the daemon and the first process closed", () =>
    onEngine(async (stage) => expectClosedDaemon(await stage.sandbox())));

  it("are answered with refusals, one by one", { timeout: 240_000 }, () =>
    onEngine(async (stage, harness) => {
      const directory = mkdtempSync(join(tmpdir(), "sl-docker-escape-"));
      const servers: Server[] = [];
      chmodSync(directory, 0o755);
      writeFileSync(join(directory, "secret"), "of the host", { mode: 0o644 });
      const victimName = `victim-${process.pid}-of-the-host`;
      const victim = spawn("/bin/sleep", ["300"], { argv0: victimName, env: { SECRET: victimName }, stdio: "ignore" });
      process.env.SANDLOT_ESCAPE_TEST = "a-secret-of-the-fleet";
      try {
        const sandbox = await stage.sandbox();
        const key = stage.newKey();
        const other = await stage.sandbox(key);
        await other.files.write("/mnt/user-data/workspace/another-threads-file", "of another thread");
        const root = join(harness.home, harness.fleetId);
        const abstractName = `sandlot-escape-${process.pid}`;
        await listen(servers, `\0${abstractName}`);
        const aims: Aims = {
          field: Object.assign(Object.create(Field.prototype) as Field, { directory, harness }),
          otherUserData: join(root, "homes", threadKeyOf(key.user, key.thread), "user-data"),
          otherSocket: join(root, "s", readdirSync(join(root, "s"))[0] ?? ""),
          ...{ victimPid: victim.pid ?? 0, victimName, fleetSecret: "a-secret-of-the-fleet", abstractName },
          port: await listen(servers),
        };
        expect(existsSync(aims.otherSocket)).toBe(true);
        const failures: string[] = [];
        const { ApiVersion } = await docker.version();
        const filters = Number(ApiVersion.split(".")[1]) >= FILTERED_SINCE_API;
        if (!filters)
          console.log(`${HYPERVISOR}: not refused by an engine of API ${ApiVersion}; see docs/backends/docker.md`);
        for (const [name, attempt] of Object.entries(attempts(aims))) {
          if (name === HYPERVISOR && !filters) continue;
          const wanted = DIFFERENT[name]?.inside ?? attempt.inside;
          const without = await outside(attempt.perl, attempt.prefix);
          const within = await inside(sandbox, attempt.perl);
          console.log(`${name}: on the host ${without}, inside ${within}`);
          if (!fits(without, attempt.outside ?? "ok")) failures.push(`${name}, the control: ${without}`);
          if (!fits(within, wanted)) failures.push(`${name}: ${within} instead of ${wanted}`);
        }
        expect(failures).toEqual([]);
      } finally {
        delete process.env.SANDLOT_ESCAPE_TEST;
        victim.kill("SIGKILL");
        for (const server of servers) server.close();
        rmSync(directory, { recursive: true, force: true });
      }
    }),
  );
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
