/**
 * The seccomp filter of the local backend.
 *
 *   buildSeccompFilter("x64" | "arm64")  the bytes that `bwrap --seccomp FD` reads
 *   FILTER_ARCHITECTURES                 where there is one; `process.arch` has the same names
 *
 * It refuses what a sandbox never needs (rules.ts) with EPERM, setuid and setgid files among it, answers `clone3`, `openat2`
 * and calls newer than the rules with ENOSYS, and kills a process that calls by the numbers of another architecture, x32 among them. Everything else is
 * allowed: bash, Node, Python, git, npm, gcc and ripgrep run as outside.
 */

export { buildSeccompFilter } from "./filter.ts";
export type { FilterArchitecture } from "./syscalls.ts";

export const FILTER_ARCHITECTURES: readonly string[] = ["x64", "arm64"];
