/**
 * The egress process: the proxy of one sandbox. It outlives the fleet that started it, as the sandbox does, and ends
 * with the sandbox:
 *
 *   read settings ─▶ listen ─▶ drop rights ─▶ say "ready" ─▶ serve ─▶ end
 *
 * It ends on a `stop`; when the process that it watches has ended; when its directory is gone, or another process has
 * replaced it there; and when it has no process to watch and no connection.
 */

import { chmodSync, readFileSync, renameSync, statSync, writeFileSync, writeSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { EGRESS_PORT } from "@sandlot/contract";
import { systemWorld } from "../../../world/system-world.ts";
import type { ProcessIdentity } from "../../../world/world.ts";
import { failedNamespace, NamespaceHolder } from "../namespace/holder.ts";
import { listenInside } from "../namespace/inner-listener.ts";
import { OpenCarrier } from "../open/carrier.ts";
import { EgressProxy, type EgressStats, NO_STATS } from "../proxy/egress-proxy.ts";
import { type Resolver, systemResolver } from "../rules/resolver.ts";
import { needsProxy } from "../sandbox-side/sandbox-network.ts";
import { type EgressCommand, type EgressNotice, readLines, sendLine } from "./control.ts";
import { type EgressSettings, places, settingsHash } from "./egress-settings.ts";

/** How late the end of a sandbox may be noticed without a notification. */
const LOOK_AROUND_MS = 2_000;

const END_TIMEOUT_MS = 2_000;

const world = systemWorld();

process.title = "sandlot-egress";
main().catch((error: unknown) => {
  process.stderr.write(`sandlot-egress: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
});

async function main(): Promise<void> {
  // Written by the same version of this package, over a private pipe.
  const settings = JSON.parse(readFileSync(0, "utf8")) as EgressSettings;
  const { controlSocket, identity: identityFile } = places(settings.directory);
  const listeners = new Set<Socket>();
  const tell = (notice: EgressNotice): void => {
    for (const socket of listeners) sendLine(socket, notice);
  };
  const holder = settings.way === "namespace" ? await NamespaceHolder.start(world, settings.namespace) : null;
  const carrier = settings.policy.mode === "open" ? await OpenCarrier.start(world, held(holder)) : null;
  const proxy = needsProxy(settings.policy) ? makeProxy(settings, tell) : null;
  if (holder === null) await proxy?.listen(places(settings.directory).proxySocket);
  else await proxy?.adopt(await listenInside(world, holder.pid, EGRESS_PORT));
  const life = new Life(settings, controlSocket, () => listeners.size > 0, [carrier, holder]);
  const control = createServer((socket) => serveControl(socket, { settings, proxy, holder, carrier, life, listeners }));
  await listenControl(control, controlSocket);
  writeFileSync(identityFile, JSON.stringify(world.identity), { mode: 0o644 });
  dropRights(settings.account);
  life.begin();
  // Without its holder the egress is broken, and a new process can start another.
  void holder?.ended().then(() => life.end());
  void carrier?.ended().then(() => life.end());
  for (const name of ["SIGHUP", "SIGPIPE", "SIGINT"] as const) process.on(name, () => {});
  process.once("SIGTERM", () => life.end());
  // A failure of one connection must not end all of them.
  process.on("uncaughtException", (error) => tell({ type: "fault", problem: faultOf(error) }));
  writeSync(1, "ready\n");
}

function makeProxy(settings: EgressSettings, tell: (notice: EgressNotice) => void): EgressProxy {
  const resolver = withFixedHosts(settings.hosts ?? {});
  return new EgressProxy({
    ...settings,
    world,
    resolver,
    onRefused: (refusal, untold) => tell({ type: "refused", refusal, untold }),
  });
}

function held(holder: NamespaceHolder | null): NamespaceHolder {
  if (holder !== null) return holder;
  throw failedNamespace("the network mode open needs the sandbox's network namespace");
}

interface Served {
  readonly settings: EgressSettings;
  readonly proxy: EgressProxy | null;
  readonly holder: NamespaceHolder | null;
  readonly carrier: OpenCarrier | null;
  readonly life: Life;
  readonly listeners: Set<Socket>;
}

function serveControl(socket: Socket, { settings, proxy, holder, carrier, life, listeners }: Served): void {
  const { sandboxId } = settings;
  listeners.add(socket);
  socket.on("error", () => socket.destroy());
  socket.once("close", () => listeners.delete(socket));
  const { identity } = world;
  const namespacePid = holder?.pid ?? null;
  sendLine(socket, { type: "hello", sandboxId, settingsHash: settingsHash(settings), identity, namespacePid });
  readLines<EgressCommand>(socket, (command) => {
    if (command.type === "stop") life.end();
    else if (command.type === "watch") life.watch(command.identity);
    else sendLine(socket, { type: "stats", stats: addUp(proxy, carrier) });
  });
}

function addUp(proxy: EgressProxy | null, carrier: OpenCarrier | null): EgressStats {
  const stats = proxy?.stats() ?? NO_STATS;
  const { up, down } = carrier?.bytes() ?? { up: 0, down: 0 };
  return { ...stats, bytesUp: stats.bytesUp + up, bytesDown: stats.bytesDown + down };
}

/** Decides when the process ends. */
class Life {
  readonly #orphanTimeoutMs: number;
  readonly #socketPath: string;
  readonly #isHeld: () => boolean;
  readonly #children: readonly ({ close(): Promise<void> } | null)[];
  #socketInode = 0;
  #watched: ProcessIdentity | null = null;
  #heldAtMs = world.monotonicMs();

  constructor(
    { orphanTimeoutMs }: EgressSettings,
    socketPath: string,
    isHeld: () => boolean,
    children: readonly ({ close(): Promise<void> } | null)[],
  ) {
    this.#children = children;
    this.#orphanTimeoutMs = orphanTimeoutMs;
    this.#socketPath = socketPath;
    this.#isHeld = isHeld;
  }

  begin(): void {
    this.#socketInode = statSync(this.#socketPath).ino;
    this.#lookLater();
  }

  watch(identity: ProcessIdentity): void {
    this.#watched = identity;
  }

  /** A caller that waits for this process to end also waits for its children. */
  end(): void {
    world.timer(END_TIMEOUT_MS, () => process.exit(0));
    void Promise.allSettled(this.#children.map((child) => child?.close())).then(() => process.exit(0));
  }

  #lookLater(): void {
    world.timer(LOOK_AROUND_MS, () => {
      if (this.#isOver()) this.end();
      else this.#lookLater();
    });
  }

  #isOver(): boolean {
    const stat = statSync(this.#socketPath, { throwIfNoEntry: false });
    if (stat?.ino !== this.#socketInode) return true;
    if (this.#watched !== null) return world.processLiveness(this.#watched) === "dead";
    if (this.#isHeld()) this.#heldAtMs = world.monotonicMs();
    return world.monotonicMs() - this.#heldAtMs >= this.#orphanTimeoutMs;
  }
}

/** Replaces a previous listener atomically, without a gap. */
async function listenControl(server: Server, path: string): Promise<void> {
  const fresh = `${path}.${world.randomHex(3)}`;
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(fresh, resolve);
  });
  chmodSync(fresh, 0o600);
  renameSync(fresh, path);
}

/** Only the place: the message may contain what was sent. */
function faultOf(error: Error): string {
  const code = "code" in error ? ` ${String(error.code)}` : "";
  return `${error.name}${code}${error.stack?.split("\n").slice(1, 4).join("") ?? ""}`;
}

/** The code that parses the sandbox's bytes has no rights on the host. Everything that needs rights is open by now. */
function dropRights(account: EgressSettings["account"]): void {
  if (account === undefined || process.getuid?.() !== 0) return;
  process.setgroups?.([]);
  process.setgid?.(account.gid);
  process.setuid?.(account.uid);
}

function withFixedHosts(hosts: Readonly<Record<string, readonly string[]>>): Resolver {
  const fixed = new Map(Object.entries(hosts));
  return async (name, signal) => fixed.get(name) ?? systemResolver(name, signal);
}
