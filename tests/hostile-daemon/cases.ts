/** Every call of the host that reads what a sandbox sends, each with the path whose response it depends on. */

import { connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Sandbox as ContractSandbox } from "@sandlot/contract";
import {
  ActivityReader,
  AioAttachment,
  AioWire,
  awaitServer,
  checkServer,
} from "../../packages/fleet/src/compat/aio/index.ts";
import {
  connectAhead,
  DaemonAttachment,
  readActivity,
  rebindDaemon,
  renewDaemon,
} from "../../packages/fleet/src/sandboxd/index.ts";
import type { DaemonTarget } from "../../packages/fleet/src/sandboxd/wire.ts";
import type { World } from "../../packages/fleet/src/world/world.ts";
import { HONEST } from "./double/honest.ts";
import { DOUBLE_KEY } from "./double/key.ts";

export interface Stage {
  readonly world: World;
  readonly socketPath: string;
  readonly port: number;
  readonly keyedPort: number;
  /** Requests a preview of the sandbox of these credentials; resolves with the response. */
  readonly preview: (target: DaemonTarget, upgrade: boolean) => Promise<string>;
}

/** How long a caller stays with something that may be silent for ever. */
const STAY_MS = 120;
/** How many events are read. */
const EVENTS_MAX = 6_000;

type Sandbox = ContractSandbox & { activity?(): Promise<unknown> };

export const SANDBOX_CALLS: Readonly<Record<string, (sandbox: Sandbox) => Promise<unknown>>> = {
  "/sandlot/exec": (it) => it.exec("true", { timeoutMs: 1_000 }),
  "/sandlot/spawn": (it) => it.spawn("true"),
  "/sandlot/execs": (it) => it.execs.list(),
  "/sandlot/exec/kill": (it) => it.execs.kill("e"),
  "/sandlot/exec/signal": (it) => it.execs.signal("e", "SIGTERM"),
  "/sandlot/exec/stdin": (it) => it.execs.writeStdin("e", "x"),
  "/sandlot/exec/follow": (it) => stay((signal) => it.execs.follow("e", { signal })),
  "/sandlot/wait/port": (it) => it.ports.waitFor(80, { timeoutMs: 1_000 }),
  "/sandlot/wait/output": (it) => it.execs.waitForOutput("e", "x", { timeoutMs: 1_000 }),
  "/sandlot/files/read": (it) => it.files.readText("/x"),
  "/sandlot/files/download": (it) => stay(() => it.files.download("/x")),
  "/sandlot/files/watch": (it) => stay((signal) => it.files.watch("/x", { signal })),
  "/sandlot/files/upload": (it) => it.files.upload("/x", pieces()),
  "/sandlot/files/write": (it) => it.files.write("/x", "x"),
  "/sandlot/files/append": (it) => it.files.append("/x", Buffer.alloc(100_000)),
  "/sandlot/files/mkdir": (it) => it.files.mkdir("/x"),
  "/sandlot/files/rename": (it) => it.files.rename("/x", "/y"),
  "/sandlot/files/remove": (it) => it.files.remove("/x"),
  "/sandlot/files/stat": (it) => it.files.stat("/x"),
  "/sandlot/files/list": (it) => it.files.list("/x"),
  "/sandlot/files/glob": (it) => it.files.glob("/x", "*"),
  "/sandlot/files/grep": (it) => it.files.grep("/x", "x"),
  "/sandlot/sessions": (it) => it.sessions.list(),
  "/sandlot/sessions/open": (it) => it.sessions.open(),
  "/sandlot/sessions/exec": (it) => it.sessions.exec("s", "true", { timeoutMs: 1_000 }),
  "/sandlot/sessions/output": (it) => it.sessions.output("s"),
  "/sandlot/sessions/close": (it) => it.sessions.close("s"),
  "/sandlot/terminals": (it) => it.terminals.list(),
  "/sandlot/terminals/open": async (it) => (await it.terminals.open({ columns: 80, rows: 24 })).detach(),
  "/sandlot/terminals/close": (it) => it.terminals.close("t"),
  "/sandlot/terminals/attach": attachTerminal,
  "/sandlot/activity": async (it) => it.activity?.(),
  "/sandlot/processes": (it) => it.processes(),
  "/sandlot/ports": (it) => it.ports.list(),
  "/sandlot/usage": (it) => it.usage(),
};

type AioSandbox = AioAttachment["sandbox"];

const AIO_CALLS: readonly (readonly [string, (sandbox: AioSandbox) => Promise<unknown>])[] = [
  ["/v1/bash/exec", (it) => it.exec("true", { timeoutMs: 1_000 })],
  ["/v1/bash/exec", (it) => it.files.list("/x")],
  ["/v1/bash/exec", (it) => it.files.glob("/x", "**/*")],
  ["/v1/bash/exec", (it) => it.files.stat("/x")],
  ["/v1/bash/exec", (it) => it.files.write("/x", "x")],
  ["/v1/bash/sessions/create", (it) => it.spawn("true")],
  ["/v1/bash/output", (it) => stay((signal) => it.execs.follow("e", { signal }))],
  ["/v1/bash/output", (it) => it.execs.waitForOutput("e", "(x+)+$", { timeoutMs: 1_000 })],
  ["/v1/bash/kill", (it) => it.execs.signal("e", "SIGTERM")],
  ["/v1/file/write", (it) => it.exec("cat", { stdin: "x", timeoutMs: 1_000 })],
  ["/v1/file/download", (it) => stay(() => it.files.download("/x"))],
  ["/v1/file/download", (it) => it.files.read("/x")],
  ["/v1/file/grep", (it) => it.files.grep("/x", "x", { glob: "**/*.ts" })],
];

export interface Case {
  readonly name: string;
  /** The path with the wrong response. */
  readonly path: string;
  readonly run: (stage: Stage, token: string) => Promise<unknown>;
}

const target = (address: DaemonTarget["address"], token: string, generation = 1): DaemonTarget => ({
  address,
  sandboxId: "s",
  generation,
  token,
});

const TRANSPORTS = {
  socket: ({ socketPath }: Stage) => ({ path: socketPath }),
  port: ({ port }: Stage) => ({ host: "127.0.0.1", port }),
  "port with a key": ({ keyedPort }: Stage) => ({ host: "127.0.0.1", port: keyedPort, keys: [DOUBLE_KEY] as const }),
} as const;

const AIO_TRANSPORTS = {
  address: ({ port }: Stage) => ({ url: `http://127.0.0.1:${port}` }),
  /** As through the connector of a network namespace: the caller passes open connections. */
  namespace: ({ socketPath }: Stage) => ({ connect: () => connected(socketPath), close: () => {} }),
} as const;

export const CASES: readonly Case[] = [...daemonCases(), ...aioCases()];
for (const path of Object.keys(HONEST))
  if (!CASES.some((one) => one.path === path) && path !== "/v1/bash/write") throw new Error(`nothing calls ${path}`);

function* daemonCases(): Generator<Case> {
  for (const [transport, addressOf] of Object.entries(TRANSPORTS)) {
    const of = (stage: Stage, token: string, generation?: number) => target(addressOf(stage), token, generation);
    const name = (path: string) => `${path} over a ${transport}`;
    for (const [path, call] of Object.entries(SANDBOX_CALLS))
      yield {
        name: name(path),
        path,
        run: (stage, token) => held(stage, of(stage, token), ({ sandbox }) => call(sandbox)),
      };
    const alone = (path: string, run: (stage: Stage, at: DaemonTarget) => Promise<unknown>): Case => ({
      name: `${path} alone over a ${transport}`,
      path,
      run: (stage, token) => run(stage, of(stage, token)),
    });
    yield alone("/sandlot/renew", (stage, at) => renewDaemon(at, undefined, stage.world));
    yield alone("/sandlot/activity", (stage, at) => readActivity(at, undefined, stage.world));
    yield alone("/sandlot/rebind", (stage, at) =>
      rebindDaemon(at, { generation: 2, token: at.token }, undefined, stage.world),
    );
    yield alone("/sandlot/rebind", async (stage, at) =>
      (await DaemonAttachment.rebind(at, { ...at, generation: 2 }, stage.world)).close(),
    );
    yield alone("/sandlot/renew", async (stage, at) => (await connectAhead(at, stage.world)).destroy());
    yield alone("/sandlot/hold", (stage, at) => held(stage, at, ({ sandbox }) => sandbox.usage()));
    yield alone("/sandlot/connect", (stage, at) =>
      held(stage, at, async (attachment) => readTunnel(await attachment.connect(80))),
    );
    yield alone("app:http", (stage, at) => stage.preview(at, false));
    yield alone("app:websocket", (stage, at) => stage.preview(at, true));
    yield alone("/sandlot/connect", (stage, at) => stage.preview(at, false));
  }
}

function* aioCases(): Generator<Case> {
  for (const [transport, addressOf] of Object.entries(AIO_TRANSPORTS)) {
    const wireOf = (stage: Stage, apiKey: string) =>
      new AioWire({ address: addressOf(stage), apiKey, environment: {} });
    const never = new AbortController().signal;
    for (const [path, call] of AIO_CALLS)
      yield {
        name: `${path} by ${transport}`,
        path,
        run: async (stage, token) => {
          const about = { sandboxId: "s", generation: 1 } as never;
          const knowledge = { checkCurrent: async () => {}, liveness: async () => "alive" as const };
          const attachment = new AioAttachment(wireOf(stage, token), stage.world, about, knowledge);
          try {
            return await call(attachment.sandbox);
          } finally {
            await attachment.close();
          }
        },
      };
    const wired = (path: string, run: (wire: AioWire, stage: Stage) => Promise<unknown>): Case => ({
      name: `${path} alone by ${transport}`,
      path,
      run: async (stage, token) => {
        const wire = wireOf(stage, token);
        try {
          return await run(wire, stage);
        } finally {
          wire.close();
        }
      },
    });
    const soon = () => AbortSignal.timeout(400);
    yield wired("/v1/sandbox", (wire, { world }) => awaitServer(wire, world, soon()));
    yield wired("/v1/sandbox", (wire, { world }) => checkServer(wire, world, soon()));
    yield wired("/v1/bash/sessions", (wire, { world }) => new ActivityReader(world).read("a", wire, never));
    yield wired("/v1/shell/sessions/stats", (wire, { world }) => new ActivityReader(world).read("a", wire, never));
    yield wired("/v1/bash/exec", (wire, { world }) => new ActivityReader(world).read("a", wire, never));
  }
}

async function held<T>(stage: Stage, at: DaemonTarget, use: (attachment: DaemonAttachment) => Promise<T>): Promise<T> {
  const attachment = await DaemonAttachment.open(at, stage.world);
  try {
    return await use(attachment);
  } finally {
    await attachment.close();
  }
}

/** Reads for a while. Silence is no failure. */
async function stay(open: (signal: AbortSignal) => AsyncIterable<unknown>): Promise<void> {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(STAYED), STAY_MS);
  let count = 0;
  try {
    for await (const _ of open(controller.signal)) if (++count >= EVENTS_MAX || controller.signal.aborted) return;
  } catch (error) {
    if (error !== STAYED) throw error;
  } finally {
    clearTimeout(timer);
  }
}
const STAYED = new Error("stayed long enough");

async function attachTerminal(sandbox: Sandbox): Promise<void> {
  const terminal = await sandbox.terminals.attach("t");
  const timer = setTimeout(() => void terminal.detach(), STAY_MS);
  try {
    terminal.write("x");
    terminal.resize(10, 10);
    for await (const _ of terminal.output);
    await terminal.ended;
  } finally {
    clearTimeout(timer);
    await terminal.detach();
  }
}

function readTunnel(tunnel: Duplex): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => tunnel.destroy(), STAY_MS);
    let bytes = 0;
    tunnel.on("data", (piece: Buffer) => {
      bytes += piece.length;
      if (bytes > 1_000_000) tunnel.destroy();
    });
    tunnel.on("close", () => {
      clearTimeout(timer);
      resolve();
    });
    tunnel.write("hello");
  });
}

async function* pieces(): AsyncGenerator<Buffer> {
  for (let count = 0; count < 20; count++) yield Buffer.alloc(100_000);
}

function connected(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once("connect", () => resolve(socket)).once("error", reject);
  });
}
