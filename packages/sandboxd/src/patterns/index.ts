/** The pattern language of every backend: the daemon matches it inside a sandbox, the memory backend in its own. */

export { CHARACTER_CLASSES, isPattern, nameMatcher, pathPattern } from "./glob-pattern.ts";
export { compileRegex, guarded } from "./guarded-regex.ts";
