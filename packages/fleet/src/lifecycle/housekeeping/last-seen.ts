/**
 * How long this instance has seen each value unchanged, on its own monotonic clock (rule 6).
 *
 * Invariant: observations before `since` do not count. The caller passes the moment since which its own view of the
 * store is unbroken, so a pause or an outage starts every observation anew.
 */

export class LastSeen<Key, Value> {
  readonly #seen = new Map<Key, { value: Value; at: number }>();

  /** Records a single observation outside a full look. */
  note(key: Key, value: Value, now: number): void {
    if (this.#seen.get(key)?.value !== value) this.#seen.set(key, { value, at: now });
  }

  /** Records all present values, and returns how long each has been unchanged. Absent keys are forgotten. */
  observe(present: Iterable<readonly [Key, Value]>, now: number, since: number): ReadonlyMap<Key, number> {
    const unchangedFor = new Map<Key, number>();
    const stillThere = new Set<Key>();
    for (const [key, value] of present) {
      stillThere.add(key);
      const seen = this.#seen.get(key);
      const at = seen !== undefined && seen.value === value && seen.at >= since ? seen.at : now;
      this.#seen.set(key, { value, at });
      unchangedFor.set(key, now - at);
    }
    for (const key of this.#seen.keys()) if (!stillThere.has(key)) this.#seen.delete(key);
    return unchangedFor;
  }
}
