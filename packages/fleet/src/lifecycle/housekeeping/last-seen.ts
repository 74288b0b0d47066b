/**
 * Sightings: for how long this instance has seen something unchanged, on its own monotonic clock (rule 6).
 *
 * Invariant: what was seen before `since` counts for nothing. The caller passes the moment from which on its own view
 * of the store was unbroken, so a pause or an outage starts every observation anew.
 */

export class LastSeen<Key, Value> {
  readonly #seen = new Map<Key, { value: Value; at: number }>();

  /** Notes one thing that was seen in another way than by looking at all. */
  note(key: Key, value: Value, now: number): void {
    if (this.#seen.get(key)?.value !== value) this.#seen.set(key, { value, at: now });
  }

  /** Notes what is there now, and answers for how long each has been seen unchanged. What is gone is forgotten. */
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
