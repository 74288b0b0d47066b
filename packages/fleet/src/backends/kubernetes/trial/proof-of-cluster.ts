/**
 * What this process knows of its cluster's promises: each is tried once, before the first sandbox that relies on it.
 *
 *   network   policies are installed where that is allowed, and two pods try them (`networkPolicy: enforce`)
 *   volume    a pod and this process try the shared claim (`workspaces.mode: claim`)
 *   users     a pod tries to have accounts of its own (`userNamespaces`)
 *
 * Invariants
 * - Callers that come together share one trial. A success is kept; a failure is tried again, but not at every call.
 * - A trial that could not be made says nothing against the cluster. Without a trial of the network nothing is made, because
 *   it could not be taken back; a volume is used, because every late binding proves itself by its nonce; and accounts of their
 *   own are not asked for.
 */

import { SandlotError } from "@sandlot/contract";
import { problemOf } from "../../../observe/event-bus.ts";
import { abortable } from "../../../world/waiting.ts";
import { installPolicies } from "../network/install-policies.ts";
import type { SharedWorkspaces } from "../workspaces/shared-workspaces.ts";
import { verdictOf } from "../workspaces/volume-trial.ts";
import { tryClaim } from "./claim-trial.ts";
import { tryNetwork } from "./network-trial.ts";
import type { TrialContext } from "./trial-pods.ts";
import { tryUserNamespaces } from "./user-namespaces.ts";

export interface ProofOptions extends TrialContext {
  /** `null`: there is no shared claim. */
  readonly shared: SharedWorkspaces | null;
  /** The end of the backend. */
  readonly signal: AbortSignal;
  /** The volume does not show a rename soon enough, so blanks cannot be used. */
  readonly onNoLateBinding: (because: string) => void;
  /** What no call reports. */
  readonly onProblem: (task: string, problem: string) => void;
}

/** After a failure the next trial waits this long. */
const AGAIN_MS = 10_000;

export class ProofOfCluster {
  readonly #options: ProofOptions;
  readonly #network: Once;
  readonly #volume: Once;
  readonly #users: Once;
  #hasOwnUsers = false;
  #withoutBlanks: string | null = null;

  constructor(options: ProofOptions) {
    this.#options = options;
    this.#network = new Once(options, () => this.#tryNetwork());
    this.#volume = new Once(options, () => this.#tryVolume());
    this.#users = new Once(options, () => this.#tryUsers());
  }

  /** Resolves when a sandbox may be made. */
  async beforeCreate(isBlank: boolean, signal: AbortSignal): Promise<void> {
    await Promise.all([this.#network.done(signal), this.#volume.done(signal), this.#usersKnown(signal)]);
    if (isBlank && this.#withoutBlanks !== null)
      throw new SandlotError("capability_missing", {
        ...{ backend: "kubernetes", capability: "late-binding" },
        neededBy: `a blank: ${this.#withoutBlanks}`,
      });
  }

  get hasOwnUsers(): boolean {
    return this.#hasOwnUsers;
  }

  /** With `auto` a trial that could not be made is tried again, and pods share the node's accounts until then. */
  async #usersKnown(signal: AbortSignal): Promise<void> {
    try {
      await this.#users.done(signal);
    } catch (error) {
      signal.throwIfAborted();
      if (this.#options.settings.kubernetes.userNamespaces !== "auto") throw error;
    }
  }

  /** Trials that were under way have ended, and their pods are removed. */
  async settled(): Promise<void> {
    await Promise.all([this.#network, this.#volume, this.#users].map((trial) => trial.settled()));
  }

  async #tryNetwork(): Promise<void> {
    const { api, settings, signal, onProblem } = this.#options;
    const { networkPolicy } = settings.kubernetes;
    if (networkPolicy === "external") return;
    const installed = await installPolicies(api, settings.kubernetes, api.transport.access.isInside, signal);
    const foreign = [...installed].filter(([, what]) => what === "foreign").map(([name]) => name);
    if (foreign.length > 0 && !api.transport.access.isInside)
      onProblem(
        "network policies",
        `${foreign.join(", ")} were made by something else and differ; they are left alone`,
      );
    await tryNetwork(this.#options, signal);
  }

  async #tryUsers(): Promise<void> {
    const { shared, signal, settings, onProblem } = this.#options;
    const { userNamespaces } = settings.kubernetes;
    if (userNamespaces === "off") return;
    const problem = await tryUserNamespaces(this.#options, shared, signal).catch((error: unknown) => {
      if (userNamespaces === "auto" && !signal.aborted) onProblem("the trial of user namespaces", problemOf(error));
      throw error;
    });
    this.#hasOwnUsers = problem === null;
    if (problem === null || userNamespaces === "auto") return;
    const fix = "Use nodes with a runtime for user namespaces, or set kubernetes.userNamespaces to auto or off.";
    throw new SandlotError("isolation_unavailable", { backend: "kubernetes", problem, fix });
  }

  async #tryVolume(): Promise<void> {
    const { shared, signal, onProblem, onNoLateBinding } = this.#options;
    if (shared === null) return;
    let steps: Awaited<ReturnType<typeof tryClaim>>;
    try {
      steps = await tryClaim(shared, this.#options, signal);
    } catch (error) {
      signal.throwIfAborted();
      onProblem("the trial of the workspaces volume", problemOf(error));
      return;
    }
    const verdict = verdictOf(steps);
    const because = verdict.reasons.join(" ");
    if (!verdict.usable)
      throw new SandlotError("engine_unavailable", {
        ...{ engine: "workspaces", problem: because, tried: [], retryAfterMs: 60_000 },
      });
    if (verdict.lateBinding) return;
    this.#withoutBlanks = because;
    onNoLateBinding(because);
  }
}

/** Work that is done once with success; callers share an attempt, and a failure for a while. */
class Once {
  readonly #options: Pick<ProofOptions, "world" | "signal">;
  readonly #work: () => Promise<void>;
  #attempt: Promise<void> | null = null;
  #failedAtMs: number | null = null;

  constructor(options: Pick<ProofOptions, "world" | "signal">, work: () => Promise<void>) {
    this.#options = options;
    this.#work = work;
  }

  done(signal: AbortSignal): Promise<void> {
    const { world } = this.#options;
    if (this.#failedAtMs !== null && world.monotonicMs() - this.#failedAtMs > AGAIN_MS) this.#attempt = null;
    if (this.#attempt === null) {
      this.#failedAtMs = null;
      this.#attempt = this.#work();
      this.#attempt.catch(() => {
        this.#failedAtMs = world.monotonicMs();
      });
    }
    return abortable(this.#attempt, signal);
  }

  async settled(): Promise<void> {
    await this.#attempt?.catch(() => {});
  }
}
