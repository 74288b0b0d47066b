/**
 * The transport of `open`: slirp4netns on a network namespace whose routes prohibit everything that is not public.
 *
 *   sandbox ── namespace: routes decide ── tap ── slirp4netns ── ordinary sockets of the host ──▶ public addresses
 *
 * slirp4netns alone reaches everything that the host reaches: private networks, metadata, the host's own addresses. So
 * the namespace has a `prohibit` route for each of these, and the kernel refuses at once with "permission denied". The
 * sandbox has no rights over the namespace, so it cannot change the routes. Binding to the device by force reaches
 * nothing either, because slirp4netns answers only for its gateway and its name server.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { Timer, World } from "../../../world/world.ts";
import { isRoot } from "../namespace/commands.ts";
import { failedNamespace, hasEnded, type NamespaceHolder, until } from "../namespace/holder.ts";
import { missingRoutes, ownAddresses, setUpLines } from "./routes.ts";

const DEVICE = "tap0";
const START_TIMEOUT_MS = 10_000;
/** How long a newly added address of the host stays reachable. */
const OWN_ADDRESSES_LOOK_MS = 1_000;

export class OpenCarrier {
  readonly #world: World;
  readonly #holder: NamespaceHolder;
  readonly #slirp: ChildProcess;
  #own: ReadonlySet<string>;
  #timer: Timer | null = null;

  private constructor(world: World, holder: NamespaceHolder, slirp: ChildProcess, own: ReadonlySet<string>) {
    this.#world = world;
    this.#holder = holder;
    this.#slirp = slirp;
    this.#own = own;
  }

  /** Resolves when public addresses are reachable and all others are not. */
  static async start(world: World, holder: NamespaceHolder): Promise<OpenCarrier> {
    const own = ownAddresses();
    // Prohibit before the egress exists.
    holder.tell(setUpLines(own));
    await until(world, START_TIMEOUT_MS, "the routes", () => missingRoutes(holder.pid, own).length === 0);
    const slirp = startSlirp(holder.pid);
    try {
      await ready(slirp, world);
      const carrier = new OpenCarrier(world, holder, slirp, own);
      carrier.#lookLater();
      return carrier;
    } catch (error) {
      slirp.kill("SIGKILL");
      throw error;
    }
  }

  /** Resolves when the transport has ended. */
  async ended(): Promise<void> {
    if (!hasEnded(this.#slirp)) await once(this.#slirp, "exit");
  }

  /** Bytes through the device, as the kernel counts them. */
  bytes(): { readonly up: number; readonly down: number } {
    const line = readFileSync(`/proc/${this.#holder.pid}/net/dev`, "utf8")
      .split("\n")
      .find((text) => text.trim().startsWith(`${DEVICE}:`));
    const counts = line?.split(":")[1]?.trim().split(/\s+/).map(Number) ?? [];
    return { up: counts[8] ?? 0, down: counts[0] ?? 0 };
  }

  async close(): Promise<void> {
    this.#timer?.cancel();
    this.#slirp.stdin?.end();
    await this.ended();
  }

  /** The host's addresses change while a sandbox lives, and none of them may be reachable. */
  #lookLater(): void {
    const look = (): void => {
      const now = ownAddresses();
      const come = [...now].filter((address) => !this.#own.has(address));
      const gone = [...this.#own].filter((address) => !now.has(address));
      this.#own = now;
      this.#holder.tell(come.map((address) => `route replace prohibit ${address}`));
      this.#holder.tell(gone.map((address) => `route del prohibit ${address}`));
      this.#lookLater();
    };
    this.#timer = this.#world.timer(OWN_ADDRESSES_LOOK_MS, look, { background: true });
  }
}

/** Ends when its stdin closes, so with this process. Writes to descriptor 3 when it is ready. */
function startSlirp(namespacePid: number): ChildProcess {
  const options = "--configure --mtu=65520 --disable-host-loopback --enable-sandbox --enable-seccomp --netns-type=path";
  const command = ["slirp4netns", ...options.split(" "), "--ready-fd=3", "--exit-fd=0", `/proc/${namespacePid}/ns/net`];
  // To confine itself it must be root of the user namespace that owns the network.
  const enter = isRoot() ? [] : ["nsenter", "--preserve-credentials", `--user=/proc/${namespacePid}/ns/user`];
  const [program = "", ...args] = [...enter, ...command, DEVICE];
  const child = spawn(program, args, { stdio: ["pipe", "ignore", "pipe", "pipe"], cwd: "/" });
  child.stdin?.on("error", () => {});
  return child;
}

async function ready(slirp: ChildProcess, world: World): Promise<void> {
  let problem = "";
  slirp.stderr?.on("data", (chunk: Buffer) => {
    problem = (problem + chunk.toString()).slice(-1_000);
  });
  const isReady = once(slirp.stdio[3] as NodeJS.ReadableStream, "data").then(() => "ready" as const);
  const isOver = once(slirp, "close").then(
    () => "ended" as const,
    () => "missing" as const,
  );
  const timer = world.timer(START_TIMEOUT_MS, () => slirp.kill("SIGKILL"));
  const first = await Promise.race([isReady, isOver]).finally(() => timer.cancel());
  if (first === "missing") throw failedNamespace("slirp4netns is not installed");
  if (first === "ended") throw failedNamespace(`slirp4netns: ${briefly(problem)}`);
}

function briefly(text: string): string {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("WARNING"));
  return lines.slice(0, 3).join("; ");
}
