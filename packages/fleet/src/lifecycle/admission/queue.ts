/**
 * A bounded queue, fair per user: a user with many waiting callers gets as many turns as a user with one.
 *
 * Invariants
 * - Users take turns; within a user it is first come, first served.
 * - A ticket leaves the queue exactly once: admitted, given up, or refused.
 */

import type { UserId } from "@sandlot/contract";

export class FairQueue<Ticket> {
  /** Users in the order of their next turn. */
  readonly #waiting = new Map<UserId, Ticket[]>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(user: UserId, ticket: Ticket): void {
    const tickets = this.#waiting.get(user);
    if (tickets === undefined) this.#waiting.set(user, [ticket]);
    else tickets.push(ticket);
    this.#size += 1;
  }

  remove(user: UserId, ticket: Ticket): boolean {
    const tickets = this.#waiting.get(user) ?? [];
    const index = tickets.indexOf(ticket);
    if (index === -1) return false;
    tickets.splice(index, 1);
    if (tickets.length === 0) this.#waiting.delete(user);
    this.#size -= 1;
    return true;
  }

  /** The first ticket of each user, in the order of their turns. */
  heads(): readonly { user: UserId; ticket: Ticket }[] {
    return [...this.#waiting].flatMap(([user, [ticket]]) => (ticket === undefined ? [] : [{ user, ticket }]));
  }

  /** The user had a turn: all other users come before its next one. */
  rotate(user: UserId): void {
    const tickets = this.#waiting.get(user);
    if (tickets === undefined) return;
    this.#waiting.delete(user);
    this.#waiting.set(user, tickets);
  }
}
