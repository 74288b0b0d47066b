/**
 * A lease on a thread's sandbox while a panel is open: it is given back when the panel is left. A page that is closed
 * gives nothing back; then the lease expires within a minute.
 */

import type { ClientLease } from "@sandlot/client";
import { useEffect, useState } from "react";
import { useSession } from "../session.tsx";

const TTL_MS = 45_000;

export interface HeldLease {
  readonly lease: ClientLease | null;
  readonly error: unknown;
  /** Why the sandbox was lost while it was held. */
  readonly lost: string | null;
  again(): void;
}

export function useLease(user: string, thread: string, purpose: string): HeldLease {
  const { clientOf } = useSession();
  const [turn, setTurn] = useState(0);
  const [held, setHeld] = useState<Omit<HeldLease, "again">>({ lease: null, error: null, lost: null });
  // biome-ignore lint/correctness/useExhaustiveDependencies: a turn is a new lease
  useEffect(() => {
    const ended = new AbortController();
    setHeld({ lease: null, error: null, lost: null });
    const taking = clientOf(user).acquire({ thread, purpose, ttlMs: TTL_MS, signal: ended.signal });
    taking.then(
      (lease) => {
        if (ended.signal.aborted) return;
        lease.onLost(({ reason }) => setHeld((before) => ({ ...before, lost: reason })));
        setHeld({ lease, error: null, lost: null });
      },
      (error) => !ended.signal.aborted && setHeld({ lease: null, error, lost: null }),
    );
    return () => {
      ended.abort();
      void taking.then(
        (lease) => lease.release(),
        () => undefined,
      );
    };
  }, [clientOf, user, thread, purpose, turn]);
  return { ...held, again: () => setTurn((before) => before + 1) };
}
