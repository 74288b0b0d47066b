/** The daemon as a process: how it starts, announces, listens, refuses and ends. */

import { spawn, spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { createServer } from "node:net";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { DAEMON_HEADERS, type DaemonConfig } from "@sandlot/contract";
import { describe, expect, onTestFinished, test } from "vitest";
import { bundle } from "../bundle.mjs";
import { daemonFile, firstLine, type StartedDaemon, startDaemon, temporaryDirectory } from "./start-daemon.ts";

const CREDENTIALS = {
  [DAEMON_HEADERS.sandboxId]: "sandbox-1",
  [DAEMON_HEADERS.generation]: "7",
  [DAEMON_HEADERS.token]: "the-token",
};

interface Reply {
  readonly status: number;
  readonly body: { readonly error?: { readonly code: string; readonly details: unknown } } & Record<string, unknown>;
}

async function ask(
  where: { socketPath: string } | { port: number },
  path: string,
  options: { headers?: Record<string, string>; method?: string; body?: string } = {},
): Promise<Reply> {
  const { headers = CREDENTIALS, method = "GET", body } = options;
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const outgoing = request({ ...where, path, method, headers, agent: false }, resolve);
    outgoing.once("error", reject);
    outgoing.end(body);
  });
  let text = "";
  for await (const chunk of response) text += String(chunk);
  return { status: response.statusCode ?? 0, body: JSON.parse(text) as Reply["body"] };
}

const exec = (where: Parameters<typeof ask>[0], command: string) =>
  ask(where, "/sandlot/exec", {
    method: "POST",
    body: JSON.stringify({ execId: "x", repeatable: false, command, hasStdin: false }),
  });

describe("the bundle", () => {
  test("is one small file without the contract's schemas", async () => {
    const { outfile, bytes, inputs } = await bundle(join(temporaryDirectory(), "sandboxd.cjs"));
    expect(bytes).toBeLessThan(213 * 1024);
    expect(inputs.filter((path) => path.includes("zod") || path.includes("node_modules"))).toEqual([]);
    expect(readFileSync(outfile, "utf8")).not.toContain("zod");
  });

  test("runs on Node 20", async (context) => {
    const node = process.env.SANDLOT_TEST_NODE_20 ?? "/usr/bin/node";
    const version = spawnSync(node, ["--version"], { encoding: "utf8" }).stdout ?? "";
    if (!version.startsWith("v20.")) return context.skip(`${node} is not Node 20`);
    const { socketPath } = await startDaemon({ node });
    expect((await exec({ socketPath }, "echo old; cat /dev/null > /dev/stderr")).body).toMatchObject({
      stdout: "old\n",
    });
    const query = `?path=${encodeURIComponent("/etc/passwd")}`;
    const body = JSON.stringify({ path: "/etc", pattern: "root", maxResults: 1 });
    expect((await ask({ socketPath }, "/sandlot/files/grep", { method: "POST", body })).status).toBe(200);
    expect((await ask({ socketPath }, `/sandlot/files/stat${query}`)).status).toBe(422);
  });
});

describe("a request", () => {
  test("needs id, generation and token, all of them and the present ones", async () => {
    const { socketPath } = await startDaemon();
    const refused = async (headers: Record<string, string>) => {
      const { status, body } = await ask({ socketPath }, "/sandlot/ports", { headers });
      return `${status} ${body.error?.code}`;
    };
    for (const name of Object.keys(CREDENTIALS)) {
      const { [name]: _, ...rest } = CREDENTIALS as Record<string, string>;
      expect(await refused(rest)).toBe("401 unauthorized");
    }
    expect(await refused({ ...CREDENTIALS, [DAEMON_HEADERS.generation]: "NaN" })).toBe("401 unauthorized");
    expect(await refused({ ...CREDENTIALS, [DAEMON_HEADERS.generation]: "8" })).toBe("409 stale_generation");
    expect(await refused({ ...CREDENTIALS, [DAEMON_HEADERS.token]: "the-tokem" })).toBe("409 stale_generation");
    expect(await refused({ ...CREDENTIALS, [DAEMON_HEADERS.token]: "" })).toBe("409 stale_generation");
    expect(await refused({ ...CREDENTIALS, [DAEMON_HEADERS.token]: "the-tokenthe-token" })).toBe(
      "409 stale_generation",
    );
    expect(await refused({ ...CREDENTIALS, [DAEMON_HEADERS.sandboxId]: "sandbox-2" })).toBe("409 stale_generation");
    // A refusal reveals nothing beyond the request.
    const { body } = await ask({ socketPath }, "/sandlot/ports", {
      headers: { ...CREDENTIALS, [DAEMON_HEADERS.generation]: "8" },
    });
    expect(body.error?.details).toEqual({ sandboxId: "sandbox-1", generation: 8, current: null });
    expect((await ask({ socketPath }, "/sandlot/ports")).status).toBe(200);
  });

  test("that makes no sense is refused, and the next one is served", async () => {
    const { socketPath } = await startDaemon();
    const post = (path: string, body: string) => ask({ socketPath }, path, { method: "POST", body });
    expect((await ask({ socketPath }, "/sandlot/nothing")).body.error?.code).toBe("invalid_request");
    expect((await ask({ socketPath }, "/sandlot/__proto__")).body.error?.code).toBe("invalid_request");
    expect((await post("/sandlot/exec", "{")).body.error?.code).toBe("invalid_request");
    expect((await post("/sandlot/exec", "[]")).body.error?.code).toBe("invalid_request");
    expect((await post("/sandlot/exec", "{}")).body.error?.code).toBe("invalid_request");
    expect((await post("/sandlot/files/stat", '{"path":7}')).body.error?.code).toBe("invalid_path");
    expect((await post("/sandlot/files/stat", '{"path":"/"}')).body).toMatchObject({ kind: "directory" });
  });
});

describe("the start", () => {
  test("listens on TCP", async () => {
    const { ready } = await startDaemon({ config: { listen: { host: "127.0.0.1", port: 0 } } });
    expect(ready.port).toBeGreaterThan(0);
    expect((await exec({ port: ready.port ?? 0 }, "echo tcp")).body).toMatchObject({ stdout: "tcp\n" });
  });

  test("listens on a descriptor that was handed over", async () => {
    const directory = temporaryDirectory();
    const socketPath = join(directory, "inherited");
    const server = createServer();
    // Node removes the path of a socket when it closes it, so the socket is renamed meanwhile.
    await new Promise<void>((resolve) => server.listen(`${socketPath}.0`, resolve));
    renameSync(`${socketPath}.0`, socketPath);
    const { fd } = (server as unknown as { _handle: { fd: number } })._handle;
    const config: DaemonConfig = {
      sandboxId: "sandbox-1",
      generation: 7,
      token: "the-token",
      listen: { fd: 5 },
      ready: { fd: 4 },
      defaultCwd: directory,
    };
    writeFileSync(join(directory, "config"), JSON.stringify(config));
    const child = spawn(
      "sh",
      ["-c", 'exec "$@" 3< config', "sh", process.execPath, await daemonFile(), "--config-fd", "3"],
      {
        cwd: directory,
        stdio: ["ignore", "ignore", "inherit", "ignore", "pipe", fd],
      },
    );
    onTestFinished(() => void child.kill("SIGKILL"));
    // From here on only the daemon accepts.
    server.close();
    expect(JSON.parse(await firstLine(child.stdio[4] as Readable))).toMatchObject({ ready: true });
    expect((await exec({ socketPath }, "echo inherited")).body).toMatchObject({ stdout: "inherited\n" });
  });

  test("is announced on a socket, too", async () => {
    const directory = temporaryDirectory();
    const path = join(directory, "ready");
    const line = new Promise<string>((resolve) => {
      const server = createServer((socket) => {
        void firstLine(socket).then(resolve);
      }).listen(path);
      onTestFinished(() => void server.close());
    });
    const socketPath = join(directory, "s");
    start({ ...CONFIG, listen: { path: socketPath }, ready: { path } });
    expect(JSON.parse(await line)).toEqual({
      ready: true,
      pid: expect.any(Number),
      sandboxId: "sandbox-1",
      generation: 7,
      port: null,
      protocol: "1.0",
    });
    expect(statSync(socketPath).mode & 0o777).toBe(0o600);
  });

  test("refuses a socket path that Node 20 would cut, and says so", async () => {
    const path = join(temporaryDirectory(), "x".repeat(100));
    for (const config of [
      { ...CONFIG, listen: { path } },
      { ...CONFIG, ready: { path } },
    ]) {
      const { code, stderr } = await start(config).ended;
      expect(code).toBe(2);
      expect(stderr).toContain("at most 100");
      expect(existsSync(path)).toBe(false);
    }
  });

  test("refuses a configuration that lacks something", async () => {
    for (const [config, problem] of [
      [{ ...CONFIG, token: "" }, "token"],
      [{ ...CONFIG, generation: "7" }, "generation"],
      [{ ...CONFIG, listen: undefined }, "listen"],
      [{ ...CONFIG, environment: { "A-B": "x" } }, "A-B"],
    ] as const) {
      const { code, stderr } = await start(config).ended;
      expect([code, stderr]).toEqual([2, expect.stringContaining(problem)]);
    }
  });

  test("takes the place of a daemon that was killed, never of one that lives", async () => {
    const first = await startDaemon();
    const second = start({ ...first.config, ready: undefined });
    expect(await second.ended).toMatchObject({ code: 1, stderr: expect.stringContaining("EADDRINUSE") });
    first.process.kill("SIGKILL");
    await first.exited;
    expect(existsSync(first.socketPath)).toBe(true);
    start({ ...first.config, ready: undefined });
    await expect
      .poll(() => exec({ socketPath: first.socketPath }, "echo again").catch(() => null))
      .toMatchObject({
        body: { stdout: "again\n" },
      });
  });
});

test("nothing of the daemon's own loads node:crypto, which would be a tenth of its start", async () => {
  // The WebSocket server loads it with the first terminal, by its short name.
  expect(readFileSync(await daemonFile(), "utf8")).not.toContain('"node:crypto"');
});

describe("a daemon that waits", () => {
  test("warms up with commands of its own, of which nothing is left", async () => {
    const [file, temporary] = [join(temporaryDirectory(), "runs"), temporaryDirectory()];
    const commandPrefix = ["/bin/sh", "-c", `echo "$@" >> ${file}; exec "$@"`, "sh"];
    const { socketPath } = await startDaemon({ config: { commandPrefix }, environment: { TMPDIR: temporary } });
    // Two commands in each of six rounds, and the end of the last line.
    await expect.poll(() => (existsSync(file) ? readFileSync(file, "utf8").split("\n").length : 0)).toBe(13);
    expect((await ask({ socketPath }, "/sandlot/execs")).body).toEqual([]);
    expect((await ask({ socketPath }, "/sandlot/activity")).body).toMatchObject({ runningExecs: 0 });
    // Real commands start with the same prefix.
    expect((await exec({ socketPath }, "echo real")).body).toMatchObject({ stdout: "real\n" });
    expect(readFileSync(file, "utf8")).toContain("echo real");
    // Its FIFOs are gone; those of the real commands stay.
    await expect.poll(() => readdirSync(temporary).filter((name) => name.startsWith(".sandboxd-"))).toHaveLength(1);
  });

  test("warms up no further once it is in use", async () => {
    const file = join(temporaryDirectory(), "runs");
    // All of the warm-up would take more than two seconds.
    const commandPrefix = ["/bin/sh", "-c", `echo "$@" >> ${file}; sleep 0.2; exec "$@"`, "sh"];
    const { socketPath } = await startDaemon({ config: { commandPrefix } });
    await exec({ socketPath }, "true");
    const runs = () => readFileSync(file, "utf8").split("\n").length;
    const before = runs();
    await new Promise((resolve) => setTimeout(resolve, 700));
    expect(runs()).toBe(before);
    expect(before).toBeLessThan(13);
  });
});

describe("the daemon", () => {
  test("is not called node, in its name or in its arguments", async () => {
    const { pid } = await startDaemon();
    expect(readFileSync(`/proc/${pid}/comm`, "utf8")).toBe("sandboxd\n");
    expect(readFileSync(`/proc/${pid}/cmdline`, "utf8")).not.toContain("node");
  });

  test("keeps its token out of sight", async () => {
    const { pid } = await startDaemon();
    for (const name of ["environ", "cmdline"])
      expect(readFileSync(`/proc/${pid}/${name}`, "utf8")).not.toContain("token");
  });

  test("ends what it has started at its own end", async () => {
    const daemon: StartedDaemon = await startDaemon();
    const { body } = await exec({ socketPath: daemon.socketPath }, "setsid sleep 60 > /dev/null 2>&1 & echo $!");
    const pid = Number(body.stdout);
    expect(stateOf(pid)).toMatch(/[SR]/);
    daemon.process.kill("SIGTERM");
    expect(await daemon.exited).toBe(0);
    // It may be a zombie: reaping is no longer the task of the daemon.
    expect(stateOf(pid)).toMatch(/^Z?$/);
    expect(existsSync(daemon.socketPath)).toBe(false);
  });
});

const CONFIG = { sandboxId: "sandbox-1", generation: 7, token: "the-token", listen: { host: "127.0.0.1", port: 0 } };

/** The state of a process; empty when there is none. */
function stateOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return stat.charAt(stat.lastIndexOf(")") + 2);
  } catch {
    return "";
  }
}

/** Starts a daemon that may fail early. */
function start(config: object): { ended: Promise<{ code: number | null; stderr: string }> } {
  const ended = daemonFile().then(
    (file) =>
      new Promise<{ code: number | null; stderr: string }>((resolve) => {
        const child = spawn(process.execPath, [file], { stdio: ["pipe", "ignore", "pipe"] });
        onTestFinished(() => void child.kill("SIGKILL"));
        let stderr = "";
        child.stderr.on("data", (chunk) => {
          stderr += String(chunk);
        });
        child.once("close", (code) => resolve({ code, stderr }));
        child.stdin.end(JSON.stringify(config));
      }),
  );
  return { ended };
}
