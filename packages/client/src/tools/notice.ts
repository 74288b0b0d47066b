/** The message to a model when its sandbox was replaced, the same in every framework. */

import type { RecoveredCheckpoint, Recovery } from "@sandlot/contract";

/** One line, or empty. */
export function noticeInWords(notice: Recovery | null): string {
  if (notice === null) return "";
  const { kind, lost, survived, checkpoint } = notice;
  const kept = survived.length > 0 ? ` Kept: ${survived.join(", ")}.` : kind === "empty" ? " Nothing was kept." : "";
  const since = checkpoint === undefined ? "" : ` ${checkpointInWords(checkpoint)}`;
  return `[The sandbox was replaced by a new one. Lost: ${lost.join(", ")}.${kept}${since}]\n`;
}

function checkpointInWords({ id, differs }: RecoveredCheckpoint): string {
  if (differs === null) return `The newest checkpoint is ${id}.`;
  return differs ? `Files have changed since checkpoint ${id}.` : `The files are those of checkpoint ${id}.`;
}
