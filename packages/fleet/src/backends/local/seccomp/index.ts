/**
 * The seccomp filter of the local backend.
 *
 *   buildSeccompFilter("x64" | "arm64")  the bytes that `bwrap --seccomp FD` reads
 *   FILTER_ARCHITECTURES                 the supported ones; `process.arch` has the same names
 *
 * It refuses calls that a sandbox never needs (rules.ts), and setuid and setgid files, with EPERM. It returns ENOSYS
 * for `clone3`, `openat2` and calls newer than the rules, and kills a process that uses the numbers of another
 * architecture, such as x32. Everything else is allowed: bash, Node, Python, git, npm, gcc and ripgrep run as outside.
 */

export { buildSeccompFilter } from "./filter.ts";
export type { FilterArchitecture } from "./syscalls.ts";

export const FILTER_ARCHITECTURES: readonly string[] = ["x64", "arm64"];
