/** What a model is told when its sandbox was replaced, in every framework the same. */

import type { Recovery } from "@sandlot/contract";

/** One line, or nothing. */
export function noticeInWords(notice: Recovery | null): string {
  if (notice === null) return "";
  const { kind, lost, survived } = notice;
  const kept = survived.length > 0 ? ` Kept: ${survived.join(", ")}.` : kind === "empty" ? " Nothing was kept." : "";
  return `[The sandbox was replaced by a new one. Lost: ${lost.join(", ")}.${kept}]\n`;
}
