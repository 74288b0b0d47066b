/**
 * What `console.log` of Node shows of an object, instead of what it is made of. A symbol of the global registry, because a
 * browser has no `node:util`.
 */

export const SHOWN: unique symbol = Symbol.for("nodejs.util.inspect.custom") as never;
