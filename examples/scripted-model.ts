/** The AI SDK's mock model with a script: which tool to call, or what to say, one after the other. */
import { MockLanguageModelV4 } from "ai/test";

export type ScriptLine = { readonly tool: string; readonly input: object } | { readonly text: string };

const COUNT = { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0, text: 1, reasoning: 0 };

export function scriptedModel(script: readonly ScriptLine[]): MockLanguageModelV4 {
  const rest = [...script.entries()];
  return new MockLanguageModelV4({
    doGenerate: async () => {
      const [index, line] = rest.shift() ?? [0, { text: "" }];
      const reason = "tool" in line ? ("tool-calls" as const) : ("stop" as const);
      return {
        content:
          "tool" in line
            ? [
                {
                  type: "tool-call",
                  toolCallId: `call-${index}`,
                  toolName: line.tool,
                  input: JSON.stringify(line.input),
                },
              ]
            : [{ type: "text", text: line.text }],
        finishReason: { unified: reason, raw: reason },
        usage: { inputTokens: COUNT, outputTokens: COUNT },
        warnings: [],
      };
    },
  });
}
