/**
 * A store that reports when it does not answer. An instance that judges peers must know that its own view was broken,
 * whichever step failed.
 */

import type { Store } from "./store.ts";

export function reportingStore(store: Store, failed: (error: unknown) => void): Store {
  const methods = new Map<PropertyKey, unknown>();
  // The proxy's target is not the store itself: a frozen target would forbid methods other than its own.
  return new Proxy({} as Store, {
    get(_, name) {
      const known = methods.get(name);
      if (known !== undefined) return known;
      const member: unknown = Reflect.get(store, name, store);
      if (typeof member !== "function") return member;
      const method = (...args: unknown[]) => {
        const result: unknown = Reflect.apply(member, store, args);
        if (result instanceof Promise) result.catch(failed);
        return result;
      };
      methods.set(name, method);
      return method;
    },
  });
}
