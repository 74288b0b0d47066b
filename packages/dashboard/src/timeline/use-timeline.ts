/**
 * A thread's timeline as this page knows it: the newest page, what came since, and earlier pages as they are asked for.
 *
 * Invariants
 * - Entries are in the order of their offsets, each once.
 * - At most `KEPT_MAX` are kept; then the oldest go, and can be asked for again.
 */

import type { SandlotClient, TimelineEntry } from "@sandlot/client";
import { useCallback, useEffect, useState } from "react";

interface State {
  readonly entries: readonly TimelineEntry[];
  readonly hasEarlier: boolean;
  readonly isWhole: boolean;
  readonly isLoading: boolean;
  readonly isMissingSome: boolean;
  readonly error: unknown;
}

const NOTHING: State = {
  ...{ entries: [], hasEarlier: false, isWhole: true, isLoading: true, isMissingSome: false, error: null },
};
const PAGE = 500;
const KEPT_MAX = 20_000;
/** Entries that come together are shown together. */
const GATHER_MS = 200;

export function useTimeline(client: SandlotClient, thread: string) {
  const [state, setState] = useState<State>(NOTHING);
  const [turn, setTurn] = useState(0);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a turn begins again
  useEffect(() => {
    const ended = new AbortController();
    const { signal } = ended;
    let waiting: TimelineEntry[] = [];
    let isMissingSome = false;
    let timer: ReturnType<typeof setTimeout> | null = null;
    const show = () => {
      timer = null;
      const next = waiting;
      waiting = [];
      const missing = isMissingSome;
      setState((before) => merged({ ...before, isMissingSome: before.isMissingSome || missing }, next));
    };
    setState(NOTHING);
    const run = async () => {
      const { entries, previous, isWhole, end } = await client.timeline.read(thread, { limit: PAGE, signal });
      setState({ ...NOTHING, entries, hasEarlier: previous !== null, isWhole, isLoading: false });
      for await (const entry of client.timeline.follow(thread, { from: end, signal })) {
        if (entry === null) isMissingSome = true;
        else waiting.push(entry);
        timer ??= setTimeout(show, GATHER_MS);
      }
    };
    run().catch((error: unknown) => !signal.aborted && setState({ ...NOTHING, isLoading: false, error }));
    return () => {
      ended.abort();
      if (timer !== null) clearTimeout(timer);
    };
  }, [client, thread, turn]);

  const before = state.entries[0]?.offset;
  const earlier = useCallback(() => {
    if (before === undefined) return;
    setState((now) => ({ ...now, isLoading: true }));
    client.timeline.read(thread, { before, limit: PAGE }).then(
      ({ entries, previous, isWhole }) =>
        setState((now) => ({
          ...merged(now, entries),
          ...{ hasEarlier: previous !== null, isWhole, isLoading: false },
        })),
      (error: unknown) => setState((now) => ({ ...now, error, isLoading: false })),
    );
  }, [client, thread, before]);

  return { ...state, earlier, again: () => setTurn((turn) => turn + 1) };
}

function merged(state: State, more: readonly TimelineEntry[]): State {
  if (more.length === 0) return state;
  const known = new Set(state.entries.map(({ offset }) => offset));
  const entries = [...state.entries, ...more.filter(({ offset }) => !known.has(offset))];
  entries.sort((one, other) => one.offset - other.offset);
  const isOver = entries.length > KEPT_MAX;
  return { ...state, entries: isOver ? entries.slice(-KEPT_MAX) : entries, hasEarlier: state.hasEarlier || isOver };
}
