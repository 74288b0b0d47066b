/** The message to a model when its sandbox was replaced, the same in every framework. */

import type { Recovery } from "@sandlot/contract";

/** One line, or empty. */
export function noticeInWords(notice: Recovery | null): string {
  if (notice === null) return "";
  const { kind, lost, survived } = notice;
  const kept = survived.length > 0 ? ` Kept: ${survived.join(", ")}.` : kind === "empty" ? " Nothing was kept." : "";
  return `[The sandbox was replaced by a new one. Lost: ${lost.join(", ")}.${kept}]\n`;
}
