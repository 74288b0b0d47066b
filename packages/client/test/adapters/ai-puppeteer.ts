/** The mock models of the AI SDK, on strings: a model's input goes to the script, the script's wish comes back. */

import type { ModelScript } from "./model-script.ts";
import type { ToolReply } from "./tool-suite.ts";

type Puppeteer = (prompt: readonly { role: string; content: unknown }[]) => Promise<unknown>;

/** `doGenerate` of a mock model of version 3 or 4. */
export function puppeteer(script: ModelScript<ToolReply>): Puppeteer {
  let calls = 0;
  return async (prompt) => {
    const last = prompt.at(-1);
    const move = await script.turn(
      last?.role === "tool" ? replyOf((last.content as { output: ToolResult }[])[0]!.output) : null,
    );
    if (move.type === "fail") throw move.error;
    const content =
      move.type === "end"
        ? [{ type: "text", text: "done" }]
        : [
            {
              type: "tool-call",
              toolCallId: `call-${++calls}`,
              toolName: move.name,
              input: JSON.stringify(move.input),
            },
          ];
    const unified = move.type === "end" ? "stop" : "tool-calls";
    const count = { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0, text: 1, reasoning: 0 };
    return {
      content,
      finishReason: { unified, raw: unified },
      usage: { inputTokens: count, outputTokens: count },
      warnings: [],
    };
  };
}

interface ToolResult {
  readonly type: string;
  readonly value: unknown;
}

function replyOf({ type, value }: ToolResult): ToolReply {
  if (typeof value === "string") return { text: value, isError: type === "error-text", images: [] };
  const parts = value as { type: string; text?: string; mediaType?: string; data?: string | { data: string } }[];
  return {
    text: parts.map(({ text = "" }) => text).join(""),
    isError: false,
    images: parts
      .filter((part) => part.type !== "text")
      .map(({ mediaType = "", data = "" }) => ({
        mimeType: mediaType,
        base64: typeof data === "string" ? data : data.data,
      })),
  };
}
