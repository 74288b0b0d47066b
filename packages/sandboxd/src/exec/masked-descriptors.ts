/**
 * Descriptors of the daemon that a child would inherit. Node marks its own to be closed when another program is run;
 * the native code that opens terminals does not, and Node cannot do it afterwards. So a child gets `/dev/null` under
 * their numbers, and only the daemon holds a terminal's other side.
 */

import { openSync } from "node:fs";

export type Stdio = (number | "ignore" | "pipe")[];

const masked = new Set<number>();
let nothing: number | null = null;

/** Hides it from all later children. Returns a function that lifts this, once it is closed. */
export function maskDescriptor(fd: number): () => void {
  nothing ??= openSync("/dev/null", "r+");
  masked.add(fd);
  return () => masked.delete(fd);
}

/** The descriptors for a child, with the masked ones covered. */
export function maskedStdio(stdio: Stdio): Stdio {
  if (masked.size === 0 || nothing === null) return stdio;
  const covered = [...stdio];
  for (const fd of masked) {
    while (covered.length <= fd) covered.push("ignore");
    covered[fd] = nothing;
  }
  return covered;
}
