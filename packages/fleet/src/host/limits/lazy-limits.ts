/**
 * Opens the limits at their first use. Opening creates the fleet's own group, and a process that never touches a
 * sandbox, such as one that only lists them, should leave nothing when it is killed.
 */

import type { Limits } from "./index.ts";

export function lazyLimits(open: () => Limits): Limits {
  let opened: Limits | null = null;
  const limits = (): Limits => {
    opened ??= open();
    return opened;
  };
  return {
    get description() {
      return limits().description;
    },
    create: (name, requested) => limits().create(name, requested),
    open: (name) => limits().open(name),
    findGroups: () => limits().findGroups(),
    close: () => opened?.close(),
  };
}
