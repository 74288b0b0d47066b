/**
 * What Node's `console.log` shows of an object, instead of its fields. A symbol of the global registry, because a
 * browser has no `node:util`.
 */

export const SHOWN: unique symbol = Symbol.for("nodejs.util.inspect.custom") as never;
