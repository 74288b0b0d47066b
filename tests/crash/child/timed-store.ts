/**
 * A store that measures its steps: how many there were, and which took longer than their deadline.
 *
 * A step is judged without the standstills of this process; main subtracts the times in which it was stopped.
 */

import type { Store } from "../../../packages/fleet/src/store/store.ts";
import { Standstills } from "../standstills.ts";
import type { Report } from "./report.ts";

const REPORT_MS = 500;

export function timedStore(store: Store, allowedMs: number, report: Report): Store {
  const standstills = new Standstills();
  let [count, worstMs] = [0, 0];
  setInterval(() => {
    if (count > 0) report.note({ note: "steps", count, worstMs: Math.round(worstMs) });
    [count, worstMs] = [0, 0];
  }, REPORT_MS).unref();

  const ended = (name: string, from: number): void => {
    const to = performance.now();
    count += 1;
    if (to - from <= allowedMs) {
      worstMs = Math.max(worstMs, to - from);
      return;
    }
    // A standstill is known only when it is over.
    setTimeout(() => {
      const ms = to - from - standstills.between(from, to);
      worstMs = Math.max(worstMs, ms);
      if (ms > allowedMs) report.note({ note: "slow-step", name, ms, allowedMs });
    }, Standstills.knownAfterMs);
  };

  return new Proxy(store, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      return (...args: unknown[]) => {
        const from = performance.now();
        const result: unknown = Reflect.apply(member, target, args);
        if (result instanceof Promise)
          result.then(
            () => ended(String(name), from),
            () => ended(String(name), from),
          );
        return result;
      };
    },
  });
}
