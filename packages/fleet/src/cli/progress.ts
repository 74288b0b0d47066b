/**
 * Says that something is still going on, once it has taken a second: on a terminal in one line that is rewritten and goes
 * when it is over, elsewhere in a line now and then. Always on stderr, so that results stay what they are.
 */

import type { Terminal } from "./terminal.ts";

const FIRST_MS = 1_000;
const NEXT_ON_TERMINAL_MS = 250;

export interface ProgressOptions {
  /** Programs that asked for JSON want no prose beside it. On a terminal it is shown all the same. */
  readonly json?: boolean;
  /** The same for a command whose stderr is somebody else's. */
  readonly onlyWatched?: boolean;
}

/** `label` is asked each time, so that it may say how far it is. */
export async function withProgress<T>(
  terminal: Terminal,
  label: string | (() => string),
  work: () => Promise<T>,
  { json = false, onlyWatched = json }: ProgressOptions = {},
): Promise<T> {
  const { isWatched } = terminal;
  if (onlyWatched && !isWatched) return work();
  const startedMs = Date.now();
  let shown = false;
  let waitMs = FIRST_MS;
  const say = () => {
    const seconds = Math.floor((Date.now() - startedMs) / 1_000);
    const text = `${typeof label === "string" ? label : label()} (${seconds} s)`;
    terminal.error(isWatched ? `\r\x1b[K${text}` : `${text}\n`);
    shown = true;
    // Where lines stay, each comes twice as late as the one before.
    waitMs = isWatched ? NEXT_ON_TERMINAL_MS : Math.max(waitMs, Date.now() - startedMs);
    timer = setTimeout(say, waitMs);
  };
  let timer = setTimeout(say, waitMs);
  try {
    return await work();
  } finally {
    clearTimeout(timer);
    if (shown && isWatched) terminal.error("\r\x1b[K");
  }
}
