/**
 * The event stream of the gateway: what happens is shown, and what is shown is asked again.
 *
 * Invariants
 * - Lists are asked again at most once in `AGAIN_MS`, and never more than a tenth of the time: two hundred events a
 *   second cost no more than one.
 * - A stream that ends begins again by itself; events that were missed make every list be asked again.
 */

import type { FleetEvent } from "@sandlot/client";
import { useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useRef, useState } from "react";
import { useSession } from "./session.tsx";

const AGAIN_MS = 1_000;
const BROKEN_MS = 2_000;
/** Also without an event: ages, and what another gateway did. */
const ANYWAY_MS = 15_000;
const KEPT_MAX = 200;

export interface Seen {
  readonly serial: number;
  readonly event: FleetEvent;
}

interface Live {
  /** The newest first. */
  readonly events: readonly Seen[];
  readonly missing: readonly string[];
}

const Context = createContext<Live>({ events: [], missing: [] });
const LISTS = ["sandboxes", "threads", "thread", "explain", "fleet", "audit"];

export function LiveProvider({ children }: { readonly children: React.ReactNode }) {
  const { client } = useSession();
  const queries = useQueryClient();
  const [live, setLive] = useState<Live>({ events: [], missing: [] });
  const serial = useRef(0);

  useEffect(() => {
    const ended = new AbortController();
    let waiting: Seen[] = [];
    let timer: ReturnType<typeof setTimeout> | null = null;
    let earliest = 0;
    const showNow = async () => {
      const next = waiting.reverse();
      waiting = [];
      if (next.length > 0)
        setLive(({ events, missing }) => ({ events: [...next, ...events].slice(0, KEPT_MAX), missing }));
      const began = performance.now();
      await queries.invalidateQueries({ predicate: ({ queryKey }) => LISTS.includes(String(queryKey[0])) });
      earliest = performance.now() + Math.max(AGAIN_MS, (performance.now() - began) * 10);
      timer = null;
      if (waiting.length > 0) showSoon();
    };
    const showSoon = () => {
      timer ??= setTimeout(() => void showNow(), Math.max(50, earliest - performance.now()));
    };
    const read = async () => {
      while (!ended.signal.aborted) {
        try {
          const onPartial = (missing: readonly string[]) => setLive(({ events }) => ({ events, missing }));
          for await (const event of client.events({ signal: ended.signal, onPartial })) {
            if (event !== null) waiting.push({ serial: serial.current++, event });
            if (waiting.length > KEPT_MAX) waiting = waiting.slice(-KEPT_MAX);
            showSoon();
          }
        } catch {
          // The connection itself says that it is broken; here it is only begun again.
        }
        if (!ended.signal.aborted) await new Promise((resolve) => setTimeout(resolve, BROKEN_MS));
        showSoon();
      }
    };
    void read();
    const anyway = setInterval(showSoon, ANYWAY_MS);
    return () => {
      ended.abort();
      clearInterval(anyway);
      if (timer !== null) clearTimeout(timer);
    };
  }, [client, queries]);

  return <Context value={live}>{children}</Context>;
}

export function useLive(): Live {
  return useContext(Context);
}

/** The time, once a second: for ages. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
