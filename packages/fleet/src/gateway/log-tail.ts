/**
 * The last lines of a gateway's log, in memory, for its operators.
 *
 * Invariants
 * - Memory is bounded: `LINES_MAX` lines of `LINE_MAX` characters.
 * - What looks like a key, a link's token or a password is replaced before a line is kept: an operator's screen is seen
 *   by others. The log itself does not name them; this is for texts of errors from elsewhere.
 */

import type { DashboardLogLine } from "@sandlot/contract";
import { tryJson } from "../world/try-json.ts";

const LINES_MAX = 1_000;
const LINE_MAX = 4_000;
/** Keys, credentials of gateways, signed tokens, passwords in addresses, and headers that carry one of these. */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  [/\bsl[kf]_[0-9a-f_]{8,}/gi, "sl*_***"],
  [/\b(sandlot-(?:link|frame|session)[\w-]*=)[^\s"';&]+/gi, "$1***"],
  [/\b(link=)[\w-]{8,}\.[\w-]{8,}/g, "$1***"],
  [/(\/aio\/)[\w-]{16,}/g, "$1***"],
  [/\b(bearer|basic)\s+[\w.~+/=-]{8,}/gi, "$1 ***"],
  [/(\b[a-z][a-z0-9+.-]{0,20}:\/\/[^\s/@:"]{0,200}):[^\s/@"]{1,500}@/gi, "$1:***@"],
  [/("?(?:password|secret|token|authorization|api_?key)"?\s*[:=]\s*"?)[^\s",}]{1,500}/gi, "$1***"],
];

const LEVELS: Readonly<Record<number, string>> = {
  ...{ 10: "trace", 20: "debug", 30: "info", 40: "warn", 50: "error", 60: "fatal" },
};

export class LogTail {
  readonly #lines: string[] = [];
  #dropped = 0;

  /** One line of the log, as a stream of it writes it. */
  write(line: string): void {
    this.#lines.push(masked(line.slice(0, LINE_MAX)));
    if (this.#lines.length <= LINES_MAX) return;
    this.#lines.shift();
    this.#dropped += 1;
  }

  /** The newest last; each with a number that goes on. */
  read(limit: number): DashboardLogLine[] {
    const from = Math.max(0, this.#lines.length - limit);
    return this.#lines.slice(from).map((text, at) => lineOf(text, this.#dropped + from + at));
  }
}

function lineOf(text: string, number: number): DashboardLogLine {
  const facts = tryJson(text);
  // A line that was cut is no JSON any more.
  if (typeof facts !== "object" || facts === null) return { number, at: null, level: "", text: text.trim() };
  const { level, time, msg, pid: _pid, hostname: _hostname, ...rest } = facts as Readonly<Record<string, unknown>>;
  const more = Object.keys(rest).length === 0 ? "" : JSON.stringify(rest);
  return {
    number,
    at: typeof time === "number" ? time : null,
    level: LEVELS[Number(level)] ?? "",
    text: [typeof msg === "string" ? msg : "", more].filter(Boolean).join(" "),
  };
}

export function masked(text: string): string {
  return SECRETS.reduce((shown, [pattern, instead]) => shown.replaceAll(pattern, instead), text);
}
