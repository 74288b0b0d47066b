/**
 * A command's stdin: a file without a name.
 *
 * All of it is known before the command starts, so no pipe has to be fed. A pipe could also block: opening a FIFO by
 * name (`cat /dev/stdin`) waits for a writer, and ours may be done by then.
 */

import { closeSync, constants, openSync, unlinkSync, writeSync } from "node:fs";

let serial = 0;

/** A descriptor at the beginning of `bytes`; `null` when there is no room for them. The caller closes it. */
export function stdinFile(directory: string, bytes: Uint8Array): number | null {
  const path = `${directory}/.sandboxd-stdin-${process.pid}-${serial++}`;
  let writeFd: number | null = null;
  try {
    writeFd = openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
    for (let at = 0; at < bytes.length; ) at += writeSync(writeFd, bytes, at);
    return openSync(path, constants.O_RDONLY);
  } catch {
    return null;
  } finally {
    if (writeFd !== null) {
      closeSync(writeFd);
      unlinkSync(path);
    }
  }
}
