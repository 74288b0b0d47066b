/** Waits for a line of output, always with a deadline. */

import { type FollowEvent, SandlotError, type WaitForOutputReply } from "@sandlot/contract";
import { compileRegex, guarded } from "@sandlot/sandboxd/patterns";
import { within } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";

export interface LineWish {
  readonly execId: string;
  readonly pattern: string;
  readonly literal?: boolean;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/** The match blocks this whole process, not only one sandbox. */
const MATCH_MAX_CPU_MS = 20;
/** How much of an unfinished line is searched. */
const LINE_MAX_CHARS = 16 * 1024;

export async function waitForLine(
  world: World,
  follow: (signal: AbortSignal) => AsyncIterable<FollowEvent>,
  { execId, pattern, literal, timeoutMs, signal }: LineWish,
): Promise<WaitForOutputReply> {
  const expression = literal === true ? null : compileRegex(pattern, "");
  const matches = (line: string) => (expression === null ? line.includes(pattern) : expression.test(line));
  const waitedFor = `${JSON.stringify(pattern)} in the output of ${execId}`;
  const late = () => new SandlotError("wait_timeout", { waitedFor, timeoutMs });
  return within(world, timeoutMs, signal, late, async (bounded) => {
    const partial = { stdout: "", stderr: "" };
    for await (const event of follow(bounded)) {
      if (event.type !== "output") continue;
      const lines = (partial[event.stream] + new TextDecoder().decode(event.bytes)).split("\n");
      const line = guarded(pattern, () => lines.find(matches), MATCH_MAX_CPU_MS);
      if (line !== undefined) return { matched: true, stream: event.stream, line };
      partial[event.stream] = (lines.at(-1) ?? "").slice(-LINE_MAX_CHARS);
    }
    return { matched: false };
  });
}
