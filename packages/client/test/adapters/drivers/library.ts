/** The tools without any framework in between. */

import { sandlotTools, type ToolOutput } from "../../../src/tools/index.ts";
import type { ToolDriver, ToolReply } from "../tool-suite.ts";

export const libraryDriver: ToolDriver = {
  name: "the library",
  async open({ source }, thread, policy = {}) {
    const tools = sandlotTools(source, { thread, ...policy });
    return {
      call: async (tool, input) => replyOf(await tools.call(tool, input)),
      [Symbol.asyncDispose]: () => tools.end(),
    };
  },
};

function replyOf({ text, isError, images }: ToolOutput): ToolReply {
  return {
    text,
    isError,
    images: images.map(({ mimeType, bytes }) => ({ mimeType, base64: Buffer.from(bytes).toString("base64") })),
  };
}
