/**
 * A store that tells when it does not answer. Whoever judges others must know that its own sight was broken, whichever
 * step it was that failed.
 */

import type { Store } from "./store.ts";

export function reportingStore(store: Store, failed: (error: unknown) => void): Store {
  const methods = new Map<PropertyKey, unknown>();
  // The store itself is not the proxy's target: a frozen one would forbid to answer with other methods than its own.
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
