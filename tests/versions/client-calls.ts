/** Every method of the client and of its sandbox, called once. */

import { randomUUID } from "node:crypto";
import type { ClientLease, SandlotClient } from "@sandlot/client";
import type { Sandbox } from "@sandlot/contract";

/** The input of a call. */
export interface CallStage {
  readonly client: SandlotClient;
  readonly lease: ClientLease;
  readonly sandbox: Sandbox;
  /** The path inside for this name. */
  readonly at: (name: string) => string;
  /** A port inside with a listening server. */
  readonly port: number;
}

/** The first events of a stream. */
async function some<T>(stream: AsyncIterable<T>, count: number): Promise<readonly T[]> {
  const taken: T[] = [];
  for await (const one of stream) if (taken.push(one) >= count) break;
  return taken;
}

/** The newest checkpoint as an archive. */
async function collected(client: SandlotClient, thread: string): Promise<Uint8Array> {
  const [newest] = await client.checkpoints.list(thread);
  const pieces: Uint8Array[] = [];
  for await (const piece of client.checkpoints.export(thread, newest?.id ?? "")) pieces.push(piece);
  return Buffer.concat(pieces);
}

const bytes = (text: string) => new TextEncoder().encode(text);
async function* pieces() {
  yield bytes("later");
}

type Call = (stage: CallStage) => Promise<unknown>;

/** Of the narrow view, for the client and for the fleet. */
export const SANDBOX_CALLS: Readonly<Record<string, Call>> = {
  exec: ({ sandbox }) => sandbox.exec("echo out; echo err >&2"),
  "exec as it prints": ({ sandbox }) => sandbox.exec("echo out", { onStdout: () => undefined }),
  spawn: ({ sandbox }) => sandbox.spawn("cat", { execId: "spawned", keepStdinOpen: true }),
  "execs.list": ({ sandbox }) => sandbox.execs.list(),
  "execs.writeStdin": ({ sandbox }) => sandbox.execs.writeStdin("spawned", "hello\n"),
  "execs.waitForOutput": ({ sandbox }) => sandbox.execs.waitForOutput("spawned", "hello", { timeoutMs: 5_000 }),
  "execs.output": ({ sandbox }) => sandbox.execs.output("spawned"),
  "execs.signal": ({ sandbox }) => sandbox.execs.signal("spawned", "SIGCONT"),
  "execs.kill": ({ sandbox }) => sandbox.execs.kill("spawned"),
  "execs.follow": ({ sandbox }) => some(sandbox.execs.follow("spawned"), 2),
  "files.write": ({ sandbox, at }) => sandbox.files.write(at("a.txt"), "text\n"),
  "files.append": ({ sandbox, at }) => sandbox.files.append(at("a.txt"), "more\n"),
  "files.upload": ({ sandbox, at }) => sandbox.files.upload(at("b.txt"), pieces()),
  "files.read": ({ sandbox, at }) => sandbox.files.read(at("a.txt")),
  "files.readText": ({ sandbox, at }) => sandbox.files.readText(at("a.txt")),
  "files.download": ({ sandbox, at }) => some(sandbox.files.download(at("a.txt")), 1),
  "files.stat": ({ sandbox, at }) => sandbox.files.stat(at("a.txt")),
  "files.list": ({ sandbox, at }) => sandbox.files.list(at(".")),
  "files.glob": ({ sandbox, at }) => sandbox.files.glob(at("."), "*.txt"),
  "files.grep": ({ sandbox, at }) => sandbox.files.grep(at("."), "text"),
  "files.mkdir": ({ sandbox, at }) => sandbox.files.mkdir(at("made")),
  "files.rename": ({ sandbox, at }) => sandbox.files.rename(at("b.txt"), at("c.txt")),
  "files.remove": ({ sandbox, at }) => sandbox.files.remove(at("c.txt")),
  "files.watch": async ({ sandbox, at }) => {
    const seen: string[] = [];
    for await (const { type } of sandbox.files.watch(at("."))) {
      if (seen.length === 0) await sandbox.files.write(at("watched.txt"), "x");
      if (seen.push(type) >= 2) break;
    }
    return seen;
  },
  "sessions.open": ({ sandbox }) => sandbox.sessions.open({ sessionId: "s" }),
  "sessions.exec": ({ sandbox }) => sandbox.sessions.exec("s", "echo in session"),
  "sessions.output": ({ sandbox }) => sandbox.sessions.output("s"),
  "sessions.list": ({ sandbox }) => sandbox.sessions.list(),
  "sessions.close": ({ sandbox }) => sandbox.sessions.close("s"),
  "terminals.open": async ({ sandbox }) => {
    const terminal = await sandbox.terminals.open({ terminalId: "t", columns: 80, rows: 24, command: ["/bin/sh"] });
    terminal.write("echo later-$((40 + 2))\n");
    let text = "";
    for await (const { bytes: shown } of terminal.output) {
      text += new TextDecoder().decode(shown);
      if (text.includes("later-42")) break;
    }
    await terminal.detach();
    return text;
  },
  "terminals.list": ({ sandbox }) => sandbox.terminals.list(),
  "terminals.attach": async ({ sandbox }) => (await sandbox.terminals.attach("t")).detach(),
  "terminals.close": ({ sandbox }) => sandbox.terminals.close("t"),
  "ports.list": ({ sandbox }) => sandbox.ports.list(),
  "ports.waitFor": ({ sandbox, port }) => sandbox.ports.waitFor(port, { timeoutMs: 5_000 }),
  processes: ({ sandbox }) => sandbox.processes(),
  usage: ({ sandbox }) => sandbox.usage(),
};

const T = "versions";

/** Of the client itself. */
export const CLIENT_CALLS: Readonly<Record<string, Call>> = {
  acquire: async ({ client }) => (await client.acquire({ thread: `t-${randomUUID().slice(0, 8)}` })).release(),
  listThreads: ({ client }) => client.listThreads(),
  findThread: ({ client }) => client.findThread(T),
  explainThread: ({ client }) => client.explainThread(T),
  branchThread: ({ client }) => client.branchThread(T, `b-${randomUUID().slice(0, 8)}`),
  uploadFiles: ({ client }) => client.uploadFiles(T, [{ name: "u.txt", content: "uploaded" }]),
  listUploads: ({ client }) => client.listUploads(T),
  linkPort: ({ client, port }) => client.linkPort(T, port),
  createAioUrl: ({ client }) => client.createAioUrl(T),
  revokeAioUrls: ({ client }) => client.revokeAioUrls(T),
  "revokeAioUrls of one": ({ client }) => client.revokeAioUrls(T, "0".repeat(48)),
  listSandboxes: ({ client }) => client.listSandboxes(),
  explain: async ({ client, sandbox }) => client.explain(sandbox.id),
  audit: ({ client }) => client.audit(),
  key: ({ client }) => client.key(),
  listKeys: ({ client }) => client.listKeys(),
  createKey: ({ client }) => client.createKey({ scope: "user", user: "u" }),
  revokeKey: ({ client }) => client.revokeKey("0".repeat(12)),
  events: async ({ client }) => {
    const events = client.events();
    const first = events.next();
    void client.acquire({ thread: "for-events" }).then(
      (lease) => lease.release(),
      // The fleet's events say why it reports nothing.
      () => undefined,
    );
    const taken = [(await first).value, (await events.next()).value];
    await events.return(undefined);
    return taken;
  },
  pool: ({ client }) => client.pool(),
  "timeline.read": ({ client }) => client.timeline.read(T),
  "timeline.follow": ({ client }) => firstOf(client.timeline.follow(T, { from: 0 })),
  "timeline.export": ({ client }) => client.timeline.export(T, "json"),
  "timeline.usage": ({ client }) => firstOf(client.timeline.usage(T)),
  "checkpoints.list": ({ client }) => client.checkpoints.list(T),
  "checkpoints.take": ({ client }) => client.checkpoints.take(T),
  "checkpoints.diff": ({ client }) => client.checkpoints.diff(T),
  "checkpoints.find": async ({ client }) =>
    client.checkpoints.find(T, (await client.checkpoints.take(T)).checkpoint?.id ?? ""),
  "checkpoints.verify": ({ client }) => client.checkpoints.verify(T),
  "checkpoints.export": async ({ client }) => collected(client, T),
  "checkpoints.seed": async ({ client }) =>
    client.checkpoints.seed(`s-${randomUUID().slice(0, 8)}`, await collected(client, T)),
  "checkpoints.restore": async ({ client }) => {
    const { checkpoint } = await client.checkpoints.take("for-events", { label: "versions" });
    return client.checkpoints.restore("for-events", checkpoint?.id ?? "", { force: true });
  },
  "checkpoints.undo": ({ client }) => client.checkpoints.undo("for-events"),
  "checkpoints.redo": ({ client }) => client.checkpoints.redo("for-events"),
  "checkpoints.remove": ({ client }) => client.checkpoints.remove("for-events", "versions"),
  resetHome: ({ client }) => client.resetHome("for-events", { force: true }),
  stopThread: ({ client }) => client.stopThread("for-events", { force: true }),
  deleteThread: ({ client }) => client.deleteThread("for-events", { force: true }),
  destroySandbox: ({ client }) => client.destroySandbox("none", { force: true }),
};

async function firstOf<Item>(items: AsyncGenerator<Item>): Promise<Item | undefined> {
  for await (const item of items) return item;
  return undefined;
}
