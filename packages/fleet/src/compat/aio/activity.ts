/**
 * The activity of a sandbox with an AIO server, as far as it is visible: commands that its server runs, and the
 * processor time of all processes, from `/proc` inside.
 */

import { SandlotError } from "@sandlot/contract";
import { within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { AioRefusal, dataOf } from "./wire/answers.ts";
import { anythingSchema, bashExecSchema, bashSessionsSchema, shellStatsSchema } from "./wire/schemas.ts";
import { type AioCall, type AioWire, NoAnswer } from "./wire/wire.ts";

export interface AioActivity {
  readonly runningExecs: number;
  readonly openTerminals: number;
  readonly previewTrafficAt: null;
  readonly cpuShare: number;
}

/** The time of every process and of its ended children, in ticks. */
const TICKS = "cat /proc/[0-9]*/stat 2>/dev/null; true";
const TICKS_PER_SECOND = 100;
const SHORT_MS = 200;
const LOOK_MS = 30_000;
/** A kernel's default maximum of processes. */
const PROCESSES_MAX = 32_768;
const FIELDS_MAX = 13;
const TEXT_MAX_CHARS = 4 * 1024 * 1024;

interface Sample {
  readonly ticks: number;
  readonly atMs: number;
}

/** Remembers its last sample, so that it can compute a share of time. */
export class ActivityReader {
  readonly #world: World;
  readonly #last = new Map<string, Sample>();

  constructor(world: World) {
    this.#world = world;
  }

  /** Rejects when it takes longer than a look may. */
  read(name: string, wire: AioWire, signal: AbortSignal): Promise<AioActivity> {
    const late = () => new NoAnswer(`no answer within ${LOOK_MS} ms`);
    return within(this.#world, LOOK_MS, signal, late, (bounded) => this.#look(name, wire, bounded));
  }

  async #look(name: string, wire: AioWire, signal: AbortSignal): Promise<AioActivity> {
    const ask = async <T>(schema: Parameters<typeof dataOf<T>>[0], call: AioCall) =>
      dataOf(schema, await wire.ask({ ...call, signal }), call.path);
    const bash = await ask(bashSessionsSchema, { method: "GET", path: "/v1/bash/sessions" });
    const shell = await ask(shellStatsSchema, { method: "GET", path: "/v1/shell/sessions/stats" }).catch(withoutShell);
    const session = { method: "POST", path: "/v1/bash/sessions/create", fields: { session_id: OWN_SESSION } } as const;
    await ask(anythingSchema, session).catch(ifRefused);
    const sample = async (): Promise<Sample> => {
      const fields = { session_id: OWN_SESSION, command: TICKS, hard_timeout: 10, max_output_length: 0 };
      const { stdout } = await ask(bashExecSchema, { method: "POST", path: "/v1/bash/exec", fields });
      return { ticks: ticksIn(stdout ?? ""), atMs: this.#world.monotonicMs() };
    };
    const before = this.#last.get(name) ?? (await this.#shortlyBefore(sample));
    const now = await sample();
    this.#last.set(name, now);
    const running = bash.filter(({ session_id, current_command }) => session_id !== OWN_SESSION && !!current_command);
    return {
      runningExecs: running.length + shell.active_sessions,
      openTerminals: 0,
      previewTrafficAt: null,
      cpuShare: shareOf(before, now),
    };
  }

  forget(name: string): void {
    this.#last.delete(name);
  }

  async #shortlyBefore(sample: () => Promise<Sample>): Promise<Sample> {
    const first = await sample();
    await new Promise<void>((resolve) => this.#world.timer(SHORT_MS, resolve));
    return first;
  }
}

const OWN_SESSION = "sandlot-activity";

/** A server may refuse to create a session that exists from the last time. */
function ifRefused(error: unknown): void {
  if (!(error instanceof AioRefusal)) throw error;
}

/** A server without shell sessions runs nothing in them. */
function withoutShell(error: unknown): { active_sessions: number } {
  if (error instanceof SandlotError && error.code === "capability_missing") return { active_sessions: 0 };
  throw error;
}

/** Fields 14 and 15 of each line, counted after the name, which may contain anything but ends with the last bracket. */
function ticksIn(text: string): number {
  return text
    .slice(0, TEXT_MAX_CHARS)
    .split("\n", PROCESSES_MAX)
    .map((line) => line.slice(line.lastIndexOf(")") + 2).split(" ", FIELDS_MAX))
    .reduce((sum, fields) => sum + (Number(fields[11]) || 0) + (Number(fields[12]) || 0), 0);
}

/** A process that ends takes its time with it, so the sum may fall. */
function shareOf(before: Sample, now: Sample): number {
  const seconds = (now.atMs - before.atMs) / 1_000;
  return seconds <= 0 ? 0 : Math.max(0, (now.ticks - before.ticks) / TICKS_PER_SECOND / seconds);
}
