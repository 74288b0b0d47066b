/**
 * The language of patterns, which is the same on every backend: what the daemon matches inside a sandbox, the memory
 * backend matches in its own.
 */

export { CHARACTER_CLASSES, isPattern, nameMatcher, pathPattern } from "./glob-pattern.ts";
export { compileRegex, guarded } from "./guarded-regex.ts";
