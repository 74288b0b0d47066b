/**
 * What a command works on: a gateway (`--url`, `$SANDLOT_URL`, `sandlot login`), or without one a private fleet during
 * the command. The command leaves no new process running.
 */

import { hostname, userInfo } from "node:os";
import type { Duplex } from "node:stream";
import type { SandlotClient } from "@sandlot/client";
import {
  type AuditFinding,
  type DestroyReply,
  type ExplanationReply,
  type FleetEvent,
  type Recovery,
  type Sandbox,
  type SandboxSummary,
  SandlotError,
  type ThreadSummary,
} from "@sandlot/contract";
import type { FleetConfig } from "../config/fleet-config.ts";
import { homeOf } from "../config/home.ts";
import type { Fleet } from "../fleet.ts";
import { readOperatorKey } from "../gateway/keys/operator-key.ts";
import { checkpointsOfFleet, checkpointsOfGateway, type TargetCheckpoints } from "./checkpoint-target.ts";
import { loadSettings } from "./load-settings.ts";
import { type Login, readLogin } from "./login.ts";
import { type SeedSource, seedOfFleet, seedOfGateway } from "./seed-source.ts";
import type { Terminal } from "./terminal.ts";
import { type TargetTimeline, timelineOfFleet, timelineOfGateway } from "./timeline-target.ts";

export interface TargetOptions {
  /** The configuration file; absent: the environment's. */
  readonly config?: string | undefined;
  /** The gateway's URL. */
  readonly url?: string | undefined;
}

export interface ThreadName {
  readonly thread: string;
  readonly user?: string | undefined;
}

/** Without a thread: a temporary sandbox, removed with the lease. */
export interface AcquireName {
  readonly thread?: string | undefined;
  readonly user?: string | undefined;
  readonly blueprint?: string | undefined;
  /** What a new thread begins with. */
  readonly from?: SeedSource | undefined;
}

export interface TargetLease extends AsyncDisposable {
  readonly sandbox: Sandbox;
  readonly recovery: Recovery;
  /** Connects to a port inside; absent through a gateway, which gives links instead. */
  readonly connect?: (port: number) => Promise<Duplex>;
}

/** `user` absent: all users for an operator or a private fleet, otherwise what the key may see. */
export interface Whose {
  readonly user?: string | undefined;
}

export interface Target {
  acquire(name: AcquireName, purpose: string, signal: AbortSignal): Promise<TargetLease>;
  /** Reports the progress of an image pull; absent through a gateway. Returns a cancel function. */
  readonly onPull?: (listener: (pull: ImagePull) => void) => () => void;
  list(whose: Whose): Promise<readonly SandboxSummary[]>;
  threads(whose: Whose): Promise<readonly ThreadSummary[]>;
  /** `null` when the thread has neither a sandbox nor files. Creates nothing. */
  findThread(name: ThreadName): Promise<ThreadSummary | null>;
  destroy(name: ThreadName, options: DestroyWish, signal: AbortSignal): Promise<DestroyReply["outcome"]>;
  /** Ends the thread's sandbox and empties its home. */
  resetHome(name: ThreadName, force: boolean, signal: AbortSignal): Promise<DestroyReply["outcome"]>;
  readonly checkpoints: TargetCheckpoints;
  readonly timeline: TargetTimeline;
  explain(sandbox: string | ThreadName): Promise<ExplanationReply>;
  /** An operator's word that nothing of a sandbox runs any more. */
  confirmDead(sandbox: string, signal: AbortSignal): Promise<void>;
  audit(): Promise<readonly AuditFinding[] | null>;
  /** `null` where some were missed. `onPartial` gets the instances whose events do not come. */
  events(signal: AbortSignal, onPartial: (instances: readonly string[]) => void): AsyncIterable<FleetEvent | null>;
  /** A link to a port; `null` without a gateway. */
  linkPort(
    name: ThreadName,
    port: number,
    ttlMs: number | undefined,
  ): Promise<{ url: string; expiresAt: number } | null>;
  /** A URL of the sandbox's AIO API; `null` without a gateway. */
  createAioUrl(name: ThreadName, ttlMs: number | undefined): Promise<AioLink | null>;
  /** How many URLs were revoked; `null` without a gateway. */
  revokeAioUrls(name: ThreadName, linkId: string | undefined): Promise<number | null>;
}

export type ImagePull = Extract<FleetEvent, { readonly type: "image-pulling" }>;

export interface AioLink {
  readonly url: string;
  readonly linkId: string;
  readonly expiresAt: number;
}

export interface DestroyWish {
  readonly force: boolean;
  readonly purge: boolean;
}

/** Opens the target, and always closes it. Sandboxes stay for the next command. */
export async function withTarget<T>(
  terminal: Terminal,
  options: TargetOptions,
  work: (target: Target) => Promise<T>,
): Promise<T> {
  const { gateway, config } = await findGateway(terminal, options);
  if (gateway !== null) return work(gatewayTarget(gateway));
  return withFleet(terminal, config, work);
}

/** The sandboxes of the target. Opens a fleet only if there is something to clean up. */
export async function listSandboxes(
  terminal: Terminal,
  options: TargetOptions & Whose,
): Promise<readonly SandboxSummary[]> {
  const { gateway, config } = await findGateway(terminal, options);
  if (gateway !== null) return gatewayTarget(gateway).list(options);
  const { makeUsable } = await import("./usable-home.ts");
  await makeUsable(homeOf(config.home, terminal.environment));
  const { quickLook } = await import("./quick-look.ts");
  const seen = await quickLook(config, process.env);
  return seen === null ? withFleet(terminal, config, (target) => target.list(options)) : seen.filter(isOf(options));
}

function isOf({ user }: Whose): (sandbox: SandboxSummary) => boolean {
  return (sandbox) => user === undefined || sandbox.user === user;
}

async function withFleet<T>(terminal: Terminal, config: FleetConfig, work: (target: Target) => Promise<T>): Promise<T> {
  const { makeUsable } = await import("./usable-home.ts");
  const { openFleet } = await import("../open-fleet.ts");
  await makeUsable(homeOf(config.home, terminal.environment));
  // Filling the warm pool would only make this command wait.
  await using fleet = await openFleet({ ...config, pool: {} });
  return await work(await fleetTarget(fleet));
}

/** Refuses a missing thread, before anything is created for it. */
export async function requireThread(target: Target, name: ThreadName): Promise<ThreadSummary> {
  const found = await target.findThread(name);
  if (found === null) throw new SandlotError("thread_not_found", { thread: name.thread });
  return found;
}

/** A lease on the sandbox that the thread has. A thread without one is an error, and gets none. */
export async function existingLease(
  target: Target,
  name: ThreadName,
  purpose: string,
  signal: AbortSignal,
): Promise<TargetLease> {
  const { sandbox } = await requireThread(target, name);
  if (sandbox === null || sandbox.state === "stopping")
    throw new SandlotError("sandbox_not_found", { id: `of thread ${name.thread}` });
  return target.acquire(name, purpose, signal);
}

/** The gateway to use, with a key where there is one; `null` for a private fleet. */
export async function findGateway(
  terminal: Terminal,
  options: TargetOptions,
): Promise<{ readonly gateway: SandlotClient | null; readonly config: FleetConfig }> {
  const { config } = await loadSettings(options.config, terminal.environment);
  const access = await gatewayAccess(terminal, options);
  if (access === null) return { gateway: null, config };
  const { SandlotClient: Client } = await import("@sandlot/client");
  return { gateway: new Client(access), config };
}

/** Its address and the key for it; `null` for a private fleet. */
export async function gatewayAccess(
  terminal: Terminal,
  options: TargetOptions,
): Promise<{ readonly url: string; readonly apiKey?: string } | null> {
  const { environment } = terminal;
  const named = await namedGateway(terminal, options);
  if (named === null) return null;
  const { url, login } = named;
  const remembered = login !== null && new URL(login.url).origin === new URL(url).origin ? login.apiKey : undefined;
  const apiKey = environment.SANDLOT_API_KEY || remembered;
  if (apiKey) return { url, apiKey };
  const { config } = await loadSettings(options.config, environment);
  return ownAccess(url, homeOf(config.home, environment));
}

/** The URL of the gateway to use; `null` for a private fleet. Needs no key. */
export async function namedGateway(
  { environment }: Terminal,
  options: TargetOptions,
): Promise<{ readonly url: string; readonly login: Login | null } | null> {
  // An empty variable counts as unset, as in shells.
  const named = options.url ?? (environment.SANDLOT_URL || undefined);
  if (named === LOCAL) return null;
  const login = await readLogin(environment);
  const url = named ?? login?.url;
  if (url === undefined) return null;
  checkUrl(url, options.url === undefined ? "SANDLOT_URL" : "--url");
  return { url, login };
}

/** The home's own key goes only to a running gateway of that home. */
async function ownAccess(url: string, home: string): Promise<{ readonly url: string; readonly apiKey: string }> {
  const { ownAddresses } = await import("../gateway/keys/own-gateways.ts");
  const { systemWorld } = await import("../world/system-world.ts");
  const own = await ownAddresses(home, systemWorld());
  const address = own.find((one) => isSameGateway(url, one));
  const apiKey = address === undefined ? null : await readOperatorKey(home);
  // Without TLS, use the recorded address: `localhost` may resolve to another, and to another process.
  if (address !== undefined && apiKey !== null) return { url: url.startsWith("https:") ? url : address, apiKey };
  const known = own.length === 0 ? "no gateway of it runs on this machine" : `its gateway is ${own.join(", ")}`;
  const problem = `no key is known for ${url}. The operator's key of ${home} goes only to a gateway of that home (${known}); set SANDLOT_API_KEY, or run \`sandlot login ${url}\``;
  throw new SandlotError("unauthorized", { problem });
}

function isSameGateway(named: string, own: string): boolean {
  const [asked, written] = [new URL(named), new URL(own)];
  const local = asked.hostname === "localhost" && ["127.0.0.1", "[::1]"].includes(written.hostname);
  if (local) asked.hostname = written.hostname;
  return asked.origin === written.origin;
}

/** In place of a URL: no gateway, although one is configured. */
const LOCAL = "local";

/** Otherwise a wrong URL would look like an unreachable gateway, with the advice to retry. */
export function checkUrl(url: string, field: string): void {
  const isAddress = URL.canParse(url) && /^https?:$/.test(new URL(url).protocol);
  if (isAddress) return;
  const problem = `${url} is not the address of a gateway, such as http://127.0.0.1:8750`;
  throw new SandlotError("invalid_request", { field, problem });
}

async function fleetTarget(fleet: Fleet): Promise<Target> {
  const { livingSandboxes, livingThreads } = await import("../inspect/living.ts");
  const { systemWorld } = await import("../world/system-world.ts");
  const world = systemWorld();
  const keyOf = ({ thread, user }: ThreadName) => ({ thread, ...(user && { user }) });
  return {
    async acquire({ thread, user, blueprint, from }, purpose, signal) {
      const options = { ...(thread && { thread }), ...(user && { user }), ...(blueprint && { blueprint }) };
      const seed = from === undefined ? {} : { from: seedOfFleet(from) };
      const lease = await fleet.acquire({ ...options, ...seed, purpose, signal });
      return {
        sandbox: lease.sandbox,
        recovery: lease.recovery,
        connect: (port) => lease.connect(port),
        [Symbol.asyncDispose]: () => lease.release(),
      };
    },
    onPull: (listener) =>
      fleet.events.on((event) => event.type === "image-pulling" && listener(event), "image-pulling"),
    list: async (whose) => (await livingSandboxes(fleet, world)).filter(isOf(whose)),
    threads: ({ user }) => livingThreads(fleet, world, user === undefined ? {} : { user }),
    findThread: (name) => fleet.findThread(keyOf(name)),
    destroy: (name, options, signal) => fleet.destroy(keyOf(name), { ...options, signal }),
    resetHome: (name, force, signal) => fleet.resetHome(keyOf(name), { force, signal }),
    checkpoints: checkpointsOfFleet(fleet),
    timeline: timelineOfFleet(fleet),
    async explain(asked) {
      const { explanationSchema } = await import("./explanation-schema.ts");
      // This fleet ends with the command, so the explanation leaves it out.
      const explained = await fleet.explain(typeof asked === "string" ? asked : keyOf(asked), { leaving: true });
      return explanationSchema.parse(explained);
    },
    confirmDead: (sandbox, signal) => fleet.confirmDead(sandbox, `${userInfo().username} on ${hostname()}`, { signal }),
    audit: () => fleet.audit(),
    events: (signal) => fleetEvents(fleet, signal),
    linkPort: async () => null,
    createAioUrl: async () => null,
    revokeAioUrls: async () => null,
  };
}

async function* fleetEvents(fleet: Fleet, signal: AbortSignal): AsyncGenerator<FleetEvent> {
  const aborted = new Promise<null>((resolve) => signal.addEventListener("abort", () => resolve(null), { once: true }));
  const events = fleet.events[Symbol.asyncIterator]();
  try {
    while (!signal.aborted) {
      const next = await Promise.race([events.next(), aborted]);
      if (next === null || next.done === true) return;
      yield next.value;
    }
  } finally {
    // It ends with the fleet; awaiting it here would mean waiting for another event.
    void events.return?.();
  }
}

function gatewayTarget(gateway: SandlotClient): Target {
  const actingFor = ({ user }: Whose) => (user === undefined ? gateway : gateway.actingFor(user));
  return {
    async acquire({ thread, user, blueprint, from }, purpose, signal) {
      const options = { ...(thread && { thread }), ...(blueprint && { blueprint }) };
      const seed = from === undefined ? {} : { from: await seedOfGateway(from) };
      return actingFor({ user }).acquire({ purpose, signal, ...options, ...seed });
    },
    list: (whose) => actingFor(whose).listSandboxes(),
    threads: (whose) => actingFor(whose).listThreads(),
    findThread: (name) => actingFor(name).findThread(name.thread),
    destroy: async (name, { force, purge }) => {
      const client = actingFor(name);
      const { outcome } = purge
        ? await client.deleteThread(name.thread, { force })
        : await client.stopThread(name.thread, { force });
      return outcome;
    },
    resetHome: async (name, force) => (await actingFor(name).resetHome(name.thread, { force })).outcome,
    checkpoints: checkpointsOfGateway(gateway),
    timeline: timelineOfGateway(gateway),
    explain: (asked) =>
      typeof asked === "string" ? gateway.explain(asked) : actingFor(asked).explainThread(asked.thread),
    confirmDead: async (sandbox) => gateway.confirmDead((await gateway.explain(sandbox)).sandboxId),
    audit: async () => {
      const { consistent, findings } = await gateway.audit();
      return consistent === null ? null : findings;
    },
    events: (signal, onPartial) => gateway.events({ signal, onPartial }),
    createAioUrl: (name, ttlMs) => actingFor(name).createAioUrl(name.thread, ttlMs === undefined ? {} : { ttlMs }),
    revokeAioUrls: (name, linkId) => actingFor(name).revokeAioUrls(name.thread, linkId),
    linkPort: (name, port, ttlMs) => actingFor(name).linkPort(name.thread, port, ttlMs === undefined ? {} : { ttlMs }),
  };
}
