/**
 * The sessions of this sandbox, by id.
 *
 * Invariant: the output of ended commands, together, is at most `HELD_MAX_BYTES`; the newest stays longest.
 */

import { SandlotError, type SessionInfo } from "@sandlot/contract";
import type { ExecTable } from "../exec/exec-table.ts";
import { Session } from "./session.ts";

export interface SessionParams {
  readonly sessionId: string | null;
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string>>;
}

const HELD_MAX_BYTES = 64 * 1024 * 1024;

export class SessionTable {
  readonly #execs: ExecTable;
  readonly #sessions = new Map<string, { readonly session: Session; readonly forget: () => void }>();
  /** Those with held output, the oldest first. */
  readonly #holding = new Set<Session>();
  #serial = 0;

  constructor(execs: ExecTable) {
    this.#execs = execs;
  }

  /** Opens a session, or returns the existing one with this id unchanged. */
  open({ sessionId, cwd, env }: SessionParams): SessionInfo {
    const id = sessionId ?? this.#freshId();
    const known = this.#sessions.get(id);
    if (known !== undefined) return known.session.info;
    const session = new Session(this.#execs, id, cwd ?? this.#execs.around.defaultCwd, env, () =>
      this.#makeRoomFor(session),
    );
    this.#sessions.set(id, { session, forget: this.#execs.settle(session) });
    return session.info;
  }

  find(sessionId: string): Session {
    const found = this.#sessions.get(sessionId);
    if (found === undefined) throw new SandlotError("session_not_found", { sessionId });
    return found.session;
  }

  list(): SessionInfo[] {
    return [...this.#sessions.values()].map(({ session }) => session.info);
  }

  /** `false`: there was none. */
  async close(sessionId: string): Promise<boolean> {
    const found = this.#sessions.get(sessionId);
    if (found === undefined) return false;
    this.#sessions.delete(sessionId);
    this.#holding.delete(found.session);
    await found.session.close();
    found.forget();
    return true;
  }

  #makeRoomFor(newest: Session): void {
    if (this.#sessions.get(newest.id)?.session !== newest) return;
    this.#holding.delete(newest);
    let bytes = newest.heldBytes;
    for (const session of this.#holding) bytes += session.heldBytes;
    for (const session of this.#holding) {
      if (bytes <= HELD_MAX_BYTES) break;
      bytes -= session.heldBytes;
      session.forgetOutput();
      this.#holding.delete(session);
    }
    this.#holding.add(newest);
  }

  #freshId(): string {
    for (;;) {
      const id = `session-${++this.#serial}`;
      if (!this.#sessions.has(id)) return id;
    }
  }
}
