/**
 * Shows progress once an operation has taken a second: on stderr, in one line that is rewritten and removed at the end.
 * Only on a terminal: a log file or a program wants results and errors only.
 */

import { showSize } from "../world/units.ts";
import type { ImagePull, Target } from "./target.ts";
import { printable, type Terminal } from "./terminal.ts";

const FIRST_MS = 1_000;
const NEXT_MS = 250;

/** `label` is called each time, so it can report progress. */
export async function withProgress<T>(
  terminal: Terminal,
  label: string | (() => string),
  work: () => Promise<T>,
): Promise<T> {
  if (!terminal.isWatched) return work();
  const startedMs = Date.now();
  const rewrite = (line: string) => void terminal.write("stderr", Buffer.from(`\r\x1b[K${printable(line)}`));
  let shown = false;
  const say = () => {
    const seconds = Math.floor((Date.now() - startedMs) / 1_000);
    rewrite(`${typeof label === "string" ? label : label()} (${seconds} s)`);
    shown = true;
    timer = setTimeout(say, NEXT_MS);
  };
  let timer = setTimeout(say, FIRST_MS);
  try {
    return await work();
  } finally {
    clearTimeout(timer);
    if (shown) rewrite("");
  }
}

/** The same while waiting for a sandbox: while its image is pulled, the line shows the pull's progress. */
export async function withPullProgress<T>(
  terminal: Terminal,
  { onPull }: Pick<Target, "onPull">,
  label: string,
  work: () => Promise<T>,
): Promise<T> {
  let pull: ImagePull | null = null;
  const stop = onPull?.((told) => {
    pull = told.state === "started" || told.state === "progress" ? told : null;
  });
  try {
    return await withProgress(terminal, () => (pull === null ? label : pullLabel(pull)), work);
  } finally {
    stop?.();
  }
}

function pullLabel({ image, currentBytes, totalBytes }: ImagePull): string {
  const rest = totalBytes > 0 ? ` of ${showSize(totalBytes)}` : "";
  return `Fetching the image ${image}: ${showSize(currentBytes)}${rest}`;
}
