/** A fleet's connection to the egress process. */

import { connect, type Socket } from "node:net";
import { SandlotError } from "@sandlot/contract";
import type { NetworkPolicy } from "../../../backend/network/policy.ts";
import type { ProcessIdentity, World } from "../../../world/world.ts";
import { enterNamespace } from "../namespace/commands.ts";
import type { EgressStats } from "../proxy/egress-proxy.ts";
import type { OnRefused } from "../proxy/refusal-log.ts";
import { type SandboxNetwork, sandboxNetwork } from "../sandbox-side/sandbox-network.ts";
import { type EgressCommand, type EgressNotice, readLines, sendLine } from "./control.ts";
import { type EgressSettings, places } from "./egress-settings.ts";

export interface Egress {
  /** What the sandbox needs inside. */
  readonly network: SandboxNetwork;
  readonly identity: ProcessIdentity;
  /** With the way `namespace`: a prefix for the command that starts the sandbox, which keeps the network it finds. */
  readonly enter: readonly string[] | null;
  /** Resolves when the process has ended, or after `detach`. While the sandbox is held, start the egress again then. */
  readonly closed: Promise<void>;
  /** Ends the proxy with this process, the sandbox's first. Without it, the proxy ends after a while unconnected. */
  watch(identity: ProcessIdentity): void;
  stats(): Promise<EgressStats>;
  /** Disconnects. The proxy stays. */
  detach(): void;
  /** Ends the proxy. */
  stop(): Promise<void>;
}

export interface JoinOptions {
  readonly directory: string;
  readonly world: World;
  readonly policy?: NetworkPolicy | undefined;
  readonly way?: EgressSettings["way"] | undefined;
  readonly onRefused?: OnRefused | undefined;
  readonly onFault?: ((problem: string) => void) | undefined;
}

const GREETING_TIMEOUT_MS = 5_000;
const STOP_TIMEOUT_MS = 5_000;
const NOTHING: NetworkPolicy = { mode: "none", allow: [], secrets: [] };

export interface Greeted {
  readonly socket: Socket;
  readonly hello: Extract<EgressNotice, { type: "hello" }>;
}

/** `null` when no process answers. */
export async function greet({ directory, world }: JoinOptions): Promise<Greeted | null> {
  const socket = connect(places(directory).controlSocket);
  return new Promise((resolve) => {
    const giveUp = (): void => {
      timer.cancel();
      socket.destroy();
      resolve(null);
    };
    const timer = world.timer(GREETING_TIMEOUT_MS, giveUp);
    socket.on("error", giveUp);
    socket.once("close", giveUp);
    readLines<EgressNotice>(socket, (notice) => {
      if (notice.type !== "hello") return;
      timer.cancel();
      socket.off("close", giveUp);
      resolve({ socket, hello: notice });
    });
  });
}

export class EgressConnection implements Egress {
  readonly network: SandboxNetwork;
  readonly identity: ProcessIdentity;
  readonly enter: readonly string[] | null;
  readonly closed: Promise<void>;
  readonly #world: World;
  readonly #socket: Socket;
  readonly #waiting: ((stats: EgressStats) => void)[] = [];

  constructor(options: JoinOptions, { socket, hello }: Greeted) {
    this.#world = options.world;
    this.#socket = socket;
    this.identity = hello.identity;
    this.enter = hello.namespacePid === null ? null : enterNamespace(hello.namespacePid);
    const { policy = NOTHING, way = "socket", directory } = options;
    this.network = sandboxNetwork(policy, places(directory).inside, way);
    this.closed = socket.closed ? Promise.resolve() : new Promise((resolve) => socket.once("close", () => resolve()));
    // The connection does not keep the fleet's process alive; the fleet does.
    socket.unref();
    readLines<EgressNotice>(socket, (notice) => {
      if (notice.type === "refused") options.onRefused?.(notice.refusal, notice.untold);
      if (notice.type === "fault") options.onFault?.(notice.problem);
      if (notice.type === "stats") this.#waiting.shift()?.(notice.stats);
    });
  }

  watch(identity: ProcessIdentity): void {
    this.#send({ type: "watch", identity });
  }

  async stats(): Promise<EgressStats> {
    const answer = new Promise<EgressStats>((resolve) => this.#waiting.push(resolve));
    this.#send({ type: "stats" });
    const stats = await Promise.race([answer, this.closed.then(() => null)]);
    if (stats === null) throw failedEgress("it has ended");
    return stats;
  }

  detach(): void {
    this.#socket.destroy();
  }

  async stop(): Promise<void> {
    const timer = this.#world.timer(STOP_TIMEOUT_MS, () => {
      if (this.#world.processLiveness(this.identity) === "alive") process.kill(this.identity.pid, "SIGKILL");
    });
    this.#send({ type: "stop" });
    await this.closed;
    timer.cancel();
  }

  #send(command: EgressCommand): void {
    sendLine(this.#socket, command);
  }
}

export function failedEgress(problem: string): SandlotError {
  return new SandlotError("create_failed", { backend: "egress", problem: `the proxy's process failed: ${problem}` });
}
