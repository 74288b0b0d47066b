/**
 * Background commands of one sandbox whose end is not noted yet. Most ends are seen on the way, because a reader follows
 * the command; for the others the sandbox is asked now and then, while this instance holds it.
 */

import type { ExecInfo, Sandbox } from "@sandlot/contract";
import type { World } from "../../world/world.ts";

export interface SpawnEnd {
  readonly status: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly durationMs?: number;
  readonly stdoutBytes?: number;
  readonly stderrBytes?: number;
}

type OnEnd = (end: SpawnEnd) => void;

const ASK_MS = { first: 1_000, most: 30_000 } as const;
/** Of those that were begun before, the end is not noted. */
const COMMANDS_MAX = 200;

export class SpawnedCommands {
  readonly #world: World;
  readonly #running = new Map<string, OnEnd>();
  #asked: Pick<Sandbox, "execs"> | null = null;
  #askAfterMs: number = ASK_MS.first;
  #isWaiting = false;

  constructor(world: World) {
    this.#world = world;
  }

  get isEmpty(): boolean {
    return this.#running.size === 0;
  }

  /** From here on this connection is asked, until it is closed. */
  follow(sandbox: Pick<Sandbox, "execs">, closed: Promise<void>): void {
    this.#asked = sandbox;
    void closed.finally(() => {
      if (this.#asked === sandbox) this.#asked = null;
    });
    this.#askLater();
  }

  has(execId: string): boolean {
    return this.#running.has(execId);
  }

  began(execId: string, onEnd: OnEnd): void {
    this.#running.set(execId, onEnd);
    for (const [oldest] of this.#running) {
      if (this.#running.size <= COMMANDS_MAX) break;
      this.#running.delete(oldest);
    }
    this.#askAfterMs = ASK_MS.first;
    this.#askLater();
  }

  ended(execId: string, end: SpawnEnd): void {
    const onEnd = this.#running.get(execId);
    this.#running.delete(execId);
    onEnd?.(end);
  }

  saw(infos: readonly ExecInfo[]): void {
    if (this.#running.size === 0) return;
    for (const { execId, status, exitCode, stdoutBytes, stderrBytes } of infos)
      if (status !== "running") this.ended(execId, { status, exitCode, signal: null, stdoutBytes, stderrBytes });
  }

  /** The sandbox is gone, and every command in it. */
  lost(): void {
    for (const execId of [...this.#running.keys()])
      this.ended(execId, { status: "lost", exitCode: null, signal: null });
  }

  #askLater(): void {
    if (this.#isWaiting || this.#running.size === 0 || this.#asked === null) return;
    this.#isWaiting = true;
    this.#world.timer(this.#askAfterMs, () => void this.#ask(), { background: true });
    this.#askAfterMs = Math.min(ASK_MS.most, this.#askAfterMs * 2);
  }

  async #ask(): Promise<void> {
    try {
      const infos = await this.#asked?.execs.list();
      if (infos !== undefined) this.saw(infos);
    } catch {
      // A sandbox that does not answer is the business of its holder; the next look asks again.
    } finally {
      this.#isWaiting = false;
      this.#askLater();
    }
  }
}
