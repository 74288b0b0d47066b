/**
 * The timeline of a thread: a bounded log of what happened to it, one entry after the other.
 *
 * Invariants
 * - An offset belongs to one entry for ever, and grows. A thread that was purged begins again with larger ones.
 * - Texts in an entry come from callers and from inside sandboxes: they are bounded, and never safe to show as markup.
 * - A reader passes on kinds, words and facts that it does not know.
 */

import { z } from "zod";
import type { DeathCause, LossReason } from "../errors.ts";
import type { AcquirePath, LimitKind, StopReason } from "../events.ts";
import { type Immutable, openEnum } from "../open-enum.ts";
import { TIMELINE_KINDS } from "./timeline-kinds.ts";

const fact = z.union([z.string(), z.number(), z.boolean(), z.null(), z.array(z.string())]);

export const timelineEntrySchema = z
  .object({
    offset: z.int().nonnegative().describe("Its place in the log: larger than those of all earlier entries."),
    at: z.number().describe("Milliseconds since 1970, by the clock of the instance that acted."),
    instance: z.string().describe("The instance that acted."),
    sandboxId: z.string().nullable(),
    generation: z.number().nullable(),
    kind: openEnum(TIMELINE_KINDS).describe("What it is about."),
    what: z.string().describe("What happened, such as `acquired` or `ended`."),
    facts: z.record(z.string(), fact).describe("The rest, by kind; see the guide of the timeline."),
  })
  .meta({ id: "TimelineEntry" });

export type TimelineEntry = Immutable<z.infer<typeof timelineEntrySchema>>;

export const timelinePageSchema = z
  .object({
    entries: z.array(timelineEntrySchema).describe("The oldest first."),
    next: z.int().nullable().describe("Where to read on: the `from` after the last entry; `null` at the end."),
    previous: z.int().nullable().describe("Earlier entries end `before` this; `null` at the beginning."),
    end: z.int().nonnegative().describe("Where the next entry will be, at the earliest."),
    isWhole: z.boolean().describe("False: the log was full, and its oldest entries were dropped."),
  })
  .meta({ id: "TimelinePage" });

export type TimelinePage = Immutable<z.infer<typeof timelinePageSchema>>;

/** How a command was started: waited for, in the background, in a session's shell, or typed into a terminal. */
export type CommandWay = "exec" | "spawn" | "session" | "terminal";

interface CommandFacts {
  /** The same in the entries of its start and its end. */
  readonly id: string;
  readonly way: CommandWay;
  readonly command: string;
  /** Of a terminal's command, `null`: the shell's history leaves it out. */
  readonly hidden?: boolean;
  readonly cwd?: string;
  readonly execId?: string;
  readonly sessionId?: string;
  readonly terminalId?: string;
  /** Where a terminal's output of it begins. */
  readonly outputOffset?: number;
}

/** What a writer notes; `TimelineEntry` is what a reader gets. */
export type TimelineNote =
  | {
      readonly kind: "lease";
      readonly what: "acquired";
      readonly facts: { readonly purpose: string; readonly path: AcquirePath; readonly durationMs: number };
    }
  | {
      readonly kind: "lease";
      readonly what: "released";
      readonly facts: { readonly purpose: string; readonly heldMs: number };
    }
  | {
      readonly kind: "lease";
      readonly what: "lost";
      readonly facts: { readonly purpose: string; readonly reason: LossReason };
    }
  | { readonly kind: "command"; readonly what: "started"; readonly facts: CommandFacts }
  | {
      readonly kind: "command";
      readonly what: "ended";
      readonly facts: CommandFacts & {
        readonly status: string;
        readonly exitCode: number | null;
        readonly signal: string | null;
        readonly durationMs: number;
        readonly stdoutBytes?: number;
        readonly stderrBytes?: number;
        /** The code of the error with which the call failed. */
        readonly error?: string;
      };
    }
  | {
      readonly kind: "files";
      readonly what: "changed";
      readonly facts: {
        readonly checkpoint: string;
        readonly added: number;
        readonly changed: number;
        readonly removed: number;
        readonly names: readonly string[];
      };
    }
  | {
      readonly kind: "limit";
      readonly what: "hit";
      readonly facts: { readonly limit: LimitKind; readonly because: string };
    }
  | {
      readonly kind: "refused";
      readonly what: "connection";
      readonly facts: {
        readonly host: string;
        readonly port: number;
        readonly rule: string;
        readonly because: string;
        /** What would allow it, as the configuration writes it. */
        readonly allow: string;
      };
    }
  | {
      readonly kind: "crash";
      readonly what: "crashed";
      readonly facts: { readonly reason: LossReason; readonly cause: DeathCause | null };
    }
  | { readonly kind: "sandbox"; readonly what: "lost"; readonly facts: { readonly reason: LossReason } }
  | {
      readonly kind: "sandbox";
      readonly what: "created";
      readonly facts: { readonly durationMs: number; readonly engine: string };
    }
  | { readonly kind: "sandbox"; readonly what: "bound"; readonly facts: { readonly from: number } }
  | { readonly kind: "sandbox"; readonly what: "attached"; readonly facts: { readonly durationMs: number } }
  | { readonly kind: "sandbox"; readonly what: "parked" | "adopted"; readonly facts: Readonly<Record<never, never>> }
  | { readonly kind: "sandbox"; readonly what: "stopping"; readonly facts: { readonly reason: StopReason } }
  | {
      readonly kind: "sandbox";
      readonly what: "stopped";
      readonly facts: { readonly reason: StopReason; readonly durationMs: number };
    }
  | {
      readonly kind: "sandbox";
      readonly what: "stop-failed";
      readonly facts: { readonly problem: string; readonly attempt: number };
    }
  | {
      readonly kind: "checkpoint";
      readonly what: "taken";
      readonly facts: {
        readonly checkpoint: string;
        readonly cause: string;
        readonly durationMs: number;
        readonly addedBytes: number;
      };
    }
  | { readonly kind: "checkpoint"; readonly what: "failed"; readonly facts: { readonly problem: string } }
  | {
      readonly kind: "restore";
      readonly what: "restore" | "undo" | "redo";
      readonly facts: { readonly checkpoint: string; readonly safety: string };
    }
  | {
      readonly kind: "restore";
      readonly what: "refused";
      readonly facts: { readonly checkpoint: string; readonly problem: string };
    }
  | { readonly kind: "fork"; readonly what: "from" | "to"; readonly facts: { readonly thread: string } }
  | { readonly kind: "preview"; readonly what: "opened"; readonly facts: { readonly port: number } }
  | {
      readonly kind: "upload";
      readonly what: "files";
      readonly facts: { readonly names: readonly string[]; readonly count: number; readonly sizeBytes: number };
    }
  | { readonly kind: "terminal"; readonly what: "opened"; readonly facts: { readonly terminalId: string } }
  | { readonly kind: "lost"; readonly what: "entries"; readonly facts: { readonly count: number } };
