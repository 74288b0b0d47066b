/**
 * The backend contract: what an engine must do to run sandboxes.
 *
 * A backend is mechanism. It makes, finds, watches and destroys; it decides nothing. The provider decides the policy:
 * which sandbox a thread gets, when one is reaped and who may destroy it.
 *
 * The walk of a sandbox through a backend:
 *
 *   create ──▶ attach ──▶ (Sandbox is used) ──▶ close of the attachment ──▶ destroy ──▶ workspaces.moveHome
 *      │                                                                      ▲
 *      └── blank: create ──▶ markers.write ──▶ moveIn ──▶ rebind ──▶ attach ────┘
 *
 * Rules for every implementation (each is a test of `testing/backend-suite.ts`)
 * - Every object carries its labels from the first moment, so that a fleet can find it after a loss of all other state.
 * - Objects are addressed by the engine's own reference, never by a name.
 * - `destroy` resolves only when no process is left. An absent object is success. A workspace in the slot is never
 *   destroyed with it: slot and markers then stay, and are listed as a dead object, until the workspace has left.
 * - `probe` returns `unknown` when the engine did not respond. Unknown never means dead.
 * - `list({ consistent: true })` sees every object whose `create` has taken effect. Without `consistent` the list may
 *   be stale, but every object in it did exist.
 * - `attach` reaches a sandbox only with its present generation and token. Another one is `stale_generation`.
 * - `rebind` is idempotent: a second call returns the result of the first.
 * - Every call takes a signal. After an abort the call rejects soon; its work may still take effect.
 */

import type { Duplex } from "node:stream";
import type {
  DeathCause,
  EngineRef,
  Generation,
  LimitKind,
  Sandbox,
  SandboxId,
  ThreadId,
  Token,
  UserId,
} from "@sandlot/contract";
import type { Liveness } from "../world/world.ts";
import type { Blueprint } from "./blueprint.ts";
import type { Checkpoints } from "./checkpoints.ts";
import type { HostWorkspaces } from "./host-workspaces.ts";
import type { Labels, Marker } from "./labels.ts";
import type { Markers } from "./markers.ts";
import type { Timelines } from "./timelines.ts";

/** What a backend may declare. Use of an undeclared capability fails with `capability_missing`. */
export type Capability =
  | "late-binding"
  | "closed-daemon"
  | "image"
  | "runtime"
  | "limits"
  | "mounts"
  | "network"
  /** Every sandbox has its own account on the host, with its own share of the kernel's resources per account. */
  | "own-account"
  | "pause"
  /** Checkpoints of workspaces (`checkpoints`). */
  | "checkpoints"
  /** A thread's files can be read and written without a sandbox (`hostWorkspaces`). */
  | "workspace-files"
  /** A blueprint's `setup` can be built once, and mounted in its sandboxes (`programsOf`). */
  | "environments"
  | "sessions"
  | "terminal"
  | "watch"
  | "preview";

export interface Backend {
  readonly name: string;
  /**
   * Names the engine: the same for every process and after every restart, and never the same for two engines. Only the
   * engine that has a sandbox can reach it.
   */
  readonly engineId: string;
  readonly capabilities: ReadonlySet<Capability>;
  /** The limits that it can set, beside the capability `limits`. Absent: all of them. */
  readonly limits?: ReadonlySet<keyof Blueprint["limits"]>;
  /** Makes a sandbox and resolves when its daemon has responded with this token and generation. */
  create(spec: CreateSpec, signal: AbortSignal): Promise<Created>;
  /** Opens the one connection a holder keeps. Rejects with `sandbox_lost` (dead), `sandbox_unreachable` (unknown) or `stale_generation`. */
  attach(target: Target, signal: AbortSignal): Promise<Attachment>;
  /** Gives a blank's daemon its new generation and token. `from` holds those it was made with. */
  rebind(target: Target, from: Credentials, signal: AbortSignal): Promise<void>;
  probe(ref: EngineRef, signal: AbortSignal): Promise<Liveness>;
  destroy(ref: EngineRef, signal: AbortSignal): Promise<void>;
  /** Everything of this fleet that the engine has, running or dead. */
  list(options: ListOptions, signal: AbortSignal): Promise<readonly EngineObject[]>;
  /** Pushes liveness. Returns a function that stops it. The reconciler finds missed events. */
  watch(listener: (event: EngineEvent) => void): () => void;
  /** Activity inside. Reading it does not count as activity. */
  activity(ref: EngineRef, signal: AbortSignal): Promise<Activity>;
  readonly workspaces: Workspaces;
  readonly markers: Markers;
  /** The workspaces as files of this host, for uploads and artifacts. Absent where the host cannot reach them. */
  hostWorkspaces?(): Promise<HostWorkspaces>;
  /** Checkpoints of the workspaces. Absent where they are no directories that the host can read: `capability_missing`. */
  readonly checkpoints?: Checkpoints;
  /** Timelines beside the workspaces. Absent where they are on no disk of this host: the fleet keeps them elsewhere. */
  readonly timelines?: Timelines;
  /** A sandbox ends by itself when no process of the fleet has renewed it for `orphanTimeoutMs`. */
  readonly endsUnrenewed?: boolean;
  /** The directories of every sandbox's programs on this host. Absent: they are known only when a sandbox runs. */
  readonly programFolders?: readonly string[];
  /** Why blanks cannot take a thread's workspace late here, for a person. `null`: they can. Absent: it is not known. */
  readonly lateBindingProblem?: string | null;
  /** What a sandbox's processes and files in memory take now. `null`: the kernel does not count it. */
  memoryOf?(ref: EngineRef, signal: AbortSignal): Promise<number | null>;
  /**
   * Names the programs that sandboxes of a blueprint have: the digest of the image, or the versions of the host's
   * interpreters. What was built with others may not run with these. Only with the capability `environments`.
   */
  programsOf?(blueprint: Blueprint, signal: AbortSignal): Promise<string>;
  /** The environment that a sandbox has mounted, as `name@hash`. `null`: none. Absent: no blueprint has a setup. */
  environmentOf?(sandboxId: SandboxId): string | null;
  /** Whether a sandbox made now would have another environment than this blank. */
  isOutdated?(blank: { readonly sandboxId: SandboxId; readonly blueprint: string }): Promise<boolean>;
  /**
   * Stops every process of a sandbox where it is, until the returned function is called. Only with the capability
   * `pause`. A sandbox that is dead, or dies meanwhile, stands still. It never stays frozen for a caller that has gone:
   * after an abort it is thawed, and so it is when this process dies.
   */
  freeze?(ref: EngineRef, signal: AbortSignal): Promise<Thaw>;
  /** What keeps a stop of this sandbox waiting, in a sentence or two for a person. `null`: nothing that is known. */
  explain?(ref: EngineRef, signal: AbortSignal): Promise<string | null>;
  /**
   * An administrator's word that nothing of this sandbox runs any more, where the engine can no longer tell. `by` names
   * the person for the audit log. Afterwards the sandbox is dead.
   */
  confirmDead?(ref: EngineRef, by: string, signal: AbortSignal): Promise<void>;
  /** Disconnects from the engine. Sandboxes stay. */
  close(): Promise<void>;
}

/** Lets a frozen sandbox go on. Returns whether nothing of it has run until then. Calling it again changes nothing. */
export type Thaw = () => Promise<boolean>;

export interface ListOptions {
  readonly consistent: boolean;
  /** Only the objects of this sandbox. */
  readonly sandboxId?: SandboxId;
}

export interface Credentials {
  readonly generation: Generation;
  readonly token: Token;
}

/** Where a sandbox's workspace is mounted from: its home, or the slot a blank was made with. */
export type Place = "home" | `slot:${string}`;

export interface CreateSpec extends Credentials {
  readonly labels: Labels;
  readonly blueprint: Blueprint;
  /** The marker of a thread's sandbox; `null` makes a blank, which gets an empty slot. */
  readonly marker: Marker | null;
  /**
   * Whether the sandbox may still run. A backend that makes an object before it runs calls this once in between, and
   * removes the object when the answer is `false`: a maker that was paused for long may have been replaced. Absent: it may.
   */
  readonly mayRun?: () => Promise<boolean>;
}

export interface Created {
  readonly ref: EngineRef;
  readonly place: Place;
  /** Whether the thread had a workspace before. A blank has none. */
  readonly workspace: "existing" | "new" | "none";
}

export interface Target extends Credentials {
  readonly sandboxId: SandboxId;
  readonly ref: EngineRef;
}

export interface Attachment {
  readonly sandbox: Sandbox;
  /** Resolves when the connection ended. By itself this says nothing about life or death: probe. */
  readonly closed: Promise<void>;
  /** A connection to a listener on a port inside. Only with the capability `preview`. */
  connect?(port: number, signal?: AbortSignal): Promise<Duplex>;
  close(): Promise<void>;
}

export interface EngineObject {
  readonly ref: EngineRef;
  readonly labels: Labels;
  /** `dead` when the engine shows only remains. */
  readonly liveness: Liveness;
  /** Where its workspace is mounted from, so that it can go home even when no record knows the object. */
  readonly place: Place;
}

/** Events of an engine. Those that a fleet emits as well have the names of `FleetEvent`, and are forwarded. */
export type EngineEvent =
  /** `cause` where the engine knows it. */
  | { readonly type: "died"; readonly ref: EngineRef; readonly sandboxId: SandboxId; readonly cause?: DeathCause }
  /** The network policy refused a connection of a sandbox. */
  | {
      readonly type: "egress-refused";
      readonly sandboxId: SandboxId;
      readonly host: string;
      readonly port: number;
      readonly rule: string;
      readonly because: string;
    }
  /** A sandbox has reached a limit: one event for all hits within a second. */
  | {
      readonly type: "limit-hit";
      readonly sandboxId: SandboxId;
      readonly limit: LimitKind;
      /** One sentence for a person, the same as the command's own last line. */
      readonly because: string;
    }
  /** The engine pulls an image before it can make a sandbox from it. Bytes are the engine's latest report. */
  | {
      readonly type: "image-pulling";
      readonly image: string;
      readonly state: "started" | "progress" | "pulled" | "failed";
      readonly currentBytes: number;
      readonly totalBytes: number;
      readonly problem: string | null;
    }
  /** A failure that no call can report. */
  | { readonly type: "housekeeping-failed"; readonly task: string; readonly problem: string }
  /** Events may have been missed: listeners must list again. */
  | { readonly type: "resync" };

/** What decides whether a sandbox is idle. A probe, a list or a metric never changes any of these. */
export interface Activity {
  readonly runningExecs: number;
  readonly openTerminals: number;
  /** Wall-clock time of the last preview request, or `null`. */
  readonly previewTrafficAt: number | null;
  /** Share of one processor over the last seconds, 0 to the number of processors. */
  readonly cpuShare: number;
}

/** One thread's workspace, and the slot it may be in. `generation` is the fence: an older one changes nothing. */
export interface WorkspaceSpot {
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly sandboxId: SandboxId;
  readonly generation: Generation;
  readonly place: Place;
}

export interface WorkspaceSight {
  readonly home: boolean;
  /** This thread's workspace is in the slot. Another thread's does not count. */
  readonly slot: boolean;
  /** A later generation than the spot's has used the workspace. */
  readonly stale: boolean;
}

/**
 * A thread's directories, which outlive its sandboxes. These are single steps; `backend/workspace-binding.ts` combines
 * them so that running them again repairs a crash between any two.
 */
export interface Workspaces {
  /**
   * Every thread that has a workspace, in any place, for a list. Threads without a name are left out. Absent: this
   * backend cannot list them, and only threads with a sandbox are known.
   */
  owners?(): Promise<readonly { readonly user: UserId; readonly thread: ThreadId }[]>;
  /**
   * The latest generation that has used any workspace; 0: none has. A new store counts on from there. A workspace that
   * cannot be read is left out, and `onProblem` says so.
   */
  latestGeneration(onProblem?: (problem: string) => void): Promise<number>;
  look(spot: WorkspaceSpot): Promise<WorkspaceSight>;
  /** Renames home into the slot. Refused with `stale_generation` when a later generation has used the workspace. */
  moveIn(spot: WorkspaceSpot): Promise<void>;
  /** Makes an empty workspace in the slot, fenced like `moveIn`. */
  makeIn(spot: WorkspaceSpot): Promise<void>;
  /** Renames the slot's workspace home, fenced. Only in `stopping`, when no process is left. Never over an existing home. */
  moveHome(spot: WorkspaceSpot): Promise<void>;
  /** Moves the content of the slot aside, out of every mount, for a person to look at. */
  quarantine(spot: WorkspaceSpot): Promise<void>;
  /** Removes the workspace wherever it is, unless a later generation has used it. */
  purge(spot: WorkspaceSpot): Promise<void>;
  /**
   * Removes the content of the kept home of a workspace that is not in a slot, fenced. Only in `stopping`, when no
   * process is left. Absent: this backend keeps no home.
   */
  emptyHome?(spot: WorkspaceSpot): Promise<void>;
}
