/**
 * Authorization: a request needs this sandbox's id, its present generation and its token.
 *
 * Every part is always compared in full, so the time of a refusal reveals nothing. Only the hash of a token is kept: it
 * may be where the sandbox's commands can see it.
 */

import type { IncomingHttpHeaders } from "node:http";
import { DAEMON_HEADERS, SandlotError } from "@sandlot/contract";
import { sha256 } from "./sha256.ts";

export interface Secret {
  readonly generation: number;
  /** SHA-256, in hexadecimal digits. */
  readonly tokenHash: string;
}

interface Claim extends Secret {
  readonly sandboxId: string;
}

export class CredentialCheck {
  readonly sandboxId: string;
  #present: Secret;
  /** The secret before the last rebind: a repeated rebind gets the same response as the first. */
  #previous: Secret | null = null;

  readonly #remember: (secret: Secret) => void;

  /** `remember` is called before a change takes effect. */
  constructor(sandboxId: string, present: Secret, remember: (secret: Secret) => void = () => {}) {
    this.sandboxId = sandboxId;
    this.#present = present;
    this.#remember = remember;
  }

  get generation(): number {
    return this.#present.generation;
  }

  check(headers: IncomingHttpHeaders): void {
    const claim = claimOf(headers);
    if (!this.#matches(claim, this.#present)) throw this.#stale(claim);
  }

  /** Whether this is the present token, for clients without id and generation. */
  knows(token: string): boolean {
    return and(equal(sha256(token), this.#present.tokenHash));
  }

  /** The secret that a rebind sets, or `null` when it changes nothing. Throws for a caller without the credentials. */
  checkRebind(
    headers: IncomingHttpHeaders,
    { generation, token }: { generation: number; token: string },
  ): Secret | null {
    const claim = claimOf(headers);
    const next = { generation, tokenHash: sha256(token) };
    const isPresent = this.#matches(claim, this.#present);
    const isPrevious = this.#previous !== null && this.#matches(claim, this.#previous);
    const isRepeated = isPrevious && same(next, this.#present);
    if (!isPresent && !isRepeated) throw this.#stale(claim);
    return isRepeated || same(next, this.#present) ? null : next;
  }

  /** Returns whether anything changed. */
  rebind(headers: IncomingHttpHeaders, to: { generation: number; token: string }): boolean {
    const next = this.checkRebind(headers, to);
    if (next === null) return false;
    this.#remember(next);
    this.#previous = this.#present;
    this.#present = next;
    return true;
  }

  #matches(claim: Claim, secret: Secret): boolean {
    const id = equal(claim.sandboxId, this.sandboxId);
    return and(
      id,
      equal(String(claim.generation), String(secret.generation)),
      equal(claim.tokenHash, secret.tokenHash),
    );
  }

  /** A caller without the present token does not learn the present generation. */
  #stale({ sandboxId, generation }: Claim): SandlotError {
    return new SandlotError("stale_generation", { sandboxId, generation, current: null });
  }
}

function claimOf(headers: IncomingHttpHeaders): Claim {
  const sandboxId = headers[DAEMON_HEADERS.sandboxId];
  const generation = Number(headers[DAEMON_HEADERS.generation]);
  const token = headers[DAEMON_HEADERS.token];
  if (typeof sandboxId !== "string" || !Number.isSafeInteger(generation) || typeof token !== "string")
    throw new SandlotError("unauthorized", { problem: "it must carry the sandbox's id, generation and token" });
  return { sandboxId, generation, tokenHash: sha256(token) };
}

function same(a: Secret, b: Secret): boolean {
  return and(a.generation === b.generation ? 1 : 0, equal(a.tokenHash, b.tokenHash));
}

/** 1 or 0, after comparing every character of `expected`. */
function equal(given: string, expected: string): number {
  let difference = given.length ^ expected.length;
  for (let at = 0; at < expected.length; at++)
    difference |= given.charCodeAt(at % (given.length || 1)) ^ expected.charCodeAt(at);
  return difference === 0 ? 1 : 0;
}

function and(...parts: readonly number[]): boolean {
  return parts.reduce((all, part) => all & part, 1) === 1;
}
