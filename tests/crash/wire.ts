/**
 * The messages between the processes of a run: JSON, one message a line.
 *
 * - Client to engine: requests over a unix socket, with responses in any order, and events that the engine pushes.
 * - Child to main: notes on stdout, written synchronously: what was acknowledged before a SIGKILL has arrived.
 * - Main to child: commands on stdin. Its end means that main is gone.
 *
 * All of them are started from the same checkout, so the type of a message is trusted.
 */

import type { Readable } from "node:stream";
import {
  type EngineRef,
  type ErrorCode,
  type ErrorDetails,
  type Generation,
  type SandboxId,
  SandlotError,
} from "@sandlot/contract";
import type {
  Activity,
  Created,
  CreateSpec,
  Credentials,
  EngineEvent,
  EngineObject,
  ListOptions,
  Target,
  WorkspaceSight,
  WorkspaceSpot,
} from "../../packages/fleet/src/backend/backend.ts";
import type { Marker } from "../../packages/fleet/src/backend/labels.ts";
import type { Liveness } from "../../packages/fleet/src/world/world.ts";

/** A write names its owner, so that a sandbox that serves two threads is detected. */
export interface Entry {
  readonly owner: string;
  readonly token: string;
}

/** A child's requests to the engine: its side of the backend contract, and those that only a test makes. */
export interface EngineCalls {
  hello(peer: { readonly name: string; readonly pid: number }): void;
  create(spec: CreateSpec): Created;
  attach(target: Target): number;
  detach(attachment: number): void;
  append(attachment: number, entry: Entry): void;
  /** Whether the workspace has the token, and the workspace's owner. */
  grep(attachment: number, entry: Entry): boolean;
  rebind(target: Target, from: Credentials): void;
  probe(ref: EngineRef): Liveness;
  destroy(ref: EngineRef): void;
  list(options: ListOptions): readonly EngineObject[];
  activity(ref: EngineRef): Activity;
  latestGeneration(): number;
  look(spot: WorkspaceSpot): WorkspaceSight;
  moveIn(spot: WorkspaceSpot): void;
  makeIn(spot: WorkspaceSpot): void;
  moveHome(spot: WorkspaceSpot): void;
  quarantine(spot: WorkspaceSpot): void;
  purge(spot: WorkspaceSpot): void;
  writeMarker(marker: Marker): void;
  markers(sandboxId: SandboxId): readonly Marker[];
  dropMarker(sandboxId: SandboxId, generation: Generation): void;

  /** Ends a sandbox that the thread uses, as a crash would. */
  crash(owner: string): void;
  /** This child is about to force the end of a thread's sandbox, or of the thread. Returns a ticket. */
  announce(what: "force" | "purge", owner: string): number;
  /** The announced call has settled. */
  settled(ticket: number): void;
  /** This child no longer trusts its holds (`instance-doubted`). */
  doubted(): void;
}

/** Main's requests to the engine. */
export interface ControlCalls {
  control(): void;
  /** From now on the next such call of any child (or of `only`) waits, and main gets a report. Replaces a trap. */
  trap(trap: Trap | null): void;
  /** The decision about a waiting call. `drop`: it never takes effect and never gets a response. */
  decide(held: number, decision: { readonly kind: "go" | "drop"; readonly afterMs: number }): void;
  /** These processes of the database, with their children, end if main does not end them. Replaces the earlier ones. */
  guard(pids: readonly number[]): void;
  /** The store may lose acknowledged commits, until told otherwise: violations are judged by its promise. */
  rewinding(isRewinding: boolean): void;
  paused(name: string): void;
  resumed(name: string): void;
  /** No more faults; waiting calls go on. Resolves when no call of a process that is gone is pending. */
  heal(): void;
  dump(): EngineDump;
}

export type Method = keyof EngineCalls;

export interface Trap {
  readonly methods: readonly Method[];
  /** Whether the call waits before its effect, or with its response. */
  readonly when: "before" | "after";
}

export interface EngineDump {
  readonly objects: readonly {
    readonly ref: string;
    readonly sandboxId: string;
    readonly alive: boolean;
    readonly attachments: number;
  }[];
  readonly slots: readonly string[];
  readonly markers: readonly string[];
  readonly workspaces: readonly {
    readonly owner: string;
    readonly where: string;
    readonly tokens: readonly string[];
  }[];
  /** Owners whose workspace an epoch may have left that was lost while its sandbox ended. */
  readonly lostRemovals: readonly string[];
  readonly purgedTokens: readonly string[];
  readonly counts: Readonly<Record<string, number>>;
}

export type Push =
  | { readonly push: "event"; readonly event: EngineEvent }
  | { readonly push: "closed"; readonly attachment: number }
  | { readonly push: "held"; readonly held: number; readonly name: string; readonly method: Method }
  | { readonly push: "violation"; readonly what: string };

export interface Request {
  readonly id: number;
  readonly method: Method | keyof ControlCalls;
  readonly args: readonly unknown[];
}

export type Answer = { readonly id: number; readonly value?: unknown; readonly error?: WireError };
type WireError = { readonly code: string | null; readonly message: string; readonly details: unknown };

/** A child's reports to main. */
export type Note =
  | { readonly note: "loaded" }
  | { readonly note: "open" }
  | {
      readonly note: "start";
      readonly call: number;
      readonly kind: string;
      readonly owner: string;
      readonly deadlineMs: number;
    }
  | { readonly note: "settle"; readonly call: number; readonly ms: number; readonly error: string | null }
  | { readonly note: "ack"; readonly owner: string; readonly token: string; readonly generation: number }
  | { readonly note: "leased" | "released"; readonly owner: string; readonly sandboxId: string }
  | { readonly note: "violation"; readonly what: string }
  /** Steps of the store since the last such note, and the longest of them. */
  | { readonly note: "steps"; readonly count: number; readonly worstMs: number }
  /** A step of the store took longer than its deadline, beside the time in which the child could not run. */
  | { readonly note: "slow-step"; readonly name: string; readonly ms: number; readonly allowedMs: number }
  | { readonly note: "finished" }
  | { readonly note: "closed" };

/** Main's commands to a child. `nudge`: take a sandbox through its whole life, so that every state is passed soon. */
export type Command =
  | { readonly command: "go" }
  | { readonly command: "nudge" }
  | { readonly command: "finish" }
  | { readonly command: "verify" }
  | { readonly command: "close"; readonly destroy: boolean };

export function readLines<Message>(from: Readable, each: (message: Message) => void): void {
  let rest = "";
  from.setEncoding("utf8");
  from.on("data", (text: string) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) each(JSON.parse(line));
  });
  // A killed process resets its connections; code that needs its end listens for `close`.
  from.on("error", () => {});
}

export function encodeError(error: unknown): WireError {
  if (error instanceof SandlotError) return { code: error.code, message: error.message, details: error.details };
  return { code: null, message: error instanceof Error ? error.message : String(error), details: null };
}

export function decodeError({ code, message, details }: WireError): Error {
  if (code === null) return new Error(message);
  return new SandlotError(code as ErrorCode, details as ErrorDetails[ErrorCode]);
}
