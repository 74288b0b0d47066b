/**
 * Descriptors of the daemon that a child would inherit. Node marks its own to be closed when another program is run; the
 * native code that opens terminals does not, and Node cannot do it afterwards. So in a child their numbers lead to
 * `/dev/null`: nobody but the daemon holds a terminal's other side.
 */

import { openSync } from "node:fs";

export type Stdio = (number | "ignore" | "pipe")[];

const masked = new Set<number>();
let nothing: number | null = null;

/** From now on no child gets it. Returns how to let it go, once it is closed. */
export function maskDescriptor(fd: number): () => void {
  nothing ??= openSync("/dev/null", "r+");
  masked.add(fd);
  return () => masked.delete(fd);
}

/** The descriptors for a child, with those covered that it must not get. */
export function maskedStdio(stdio: Stdio): Stdio {
  if (masked.size === 0 || nothing === null) return stdio;
  const covered = [...stdio];
  for (const fd of masked) {
    while (covered.length <= fd) covered.push("ignore");
    covered[fd] = nothing;
  }
  return covered;
}
