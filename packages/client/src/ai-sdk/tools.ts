/**
 * The tools for the AI SDK. They are plain objects that versions 6 and 7 both accept; the versions differ in how a
 * tool's result carries an image, so version 6 has to be named.
 */

import type { ToolSet } from "ai";
import type { z } from "zod";
import { base64Of } from "../tools/base64.ts";
import type { SandboxSource } from "../tools/source.ts";
import type { ToolImage, ToolOutput } from "../tools/tool.ts";
import { ToolBox, type ToolBoxOptions } from "../tools/tool-box.ts";

export interface AiSdkToolsOptions extends ToolBoxOptions {
  /** The major version of `ai`. Default 7. */
  readonly sdkVersion?: 6 | 7;
}

export interface AiSdkTools extends AsyncDisposable {
  /** A tool set of the installed version of `ai`. */
  readonly tools: ToolSet;
  end(): Promise<void>;
}

interface AiSdkTool {
  readonly description: string;
  readonly inputSchema: z.ZodObject;
  execute(input: unknown, options: { readonly abortSignal?: AbortSignal }): Promise<ToolOutput>;
  toModelOutput(options: { readonly output: ToolOutput }): ModelOutput;
}

type ModelOutput =
  | { type: "text" | "error-text"; value: string }
  | { type: "content"; value: ({ type: "text"; text: string } | AiImage)[] };
type AiImage =
  | { type: "file"; mediaType: string; data: { type: "data"; data: string } }
  | { type: "image-data"; mediaType: string; data: string };

/** The tools of one run. Dispose them, or `end()` them, when it is over; an aborted `signal` does so too. */
export function sandlotTools(source: SandboxSource, options: AiSdkToolsOptions): AiSdkTools {
  const { sdkVersion = 7 } = options;
  const toolBox = new ToolBox(source, { purpose: "ai-sdk", ...options });
  const tools = toolBox.tools.map(({ name, description, input }): [string, AiSdkTool] => [
    name,
    {
      description,
      inputSchema: input,
      execute: (args, { abortSignal }) => toolBox.call(name, args, { signal: abortSignal }),
      toModelOutput: ({ output }) => modelOutput(output, sdkVersion),
    },
  ]);
  return {
    tools: Object.fromEntries<AiSdkTool>(tools),
    end: () => toolBox.end(),
    [Symbol.asyncDispose]: () => toolBox.end(),
  };
}

function modelOutput({ text, images, isError }: ToolOutput, sdkVersion: 6 | 7): ModelOutput {
  if (images.length === 0) return { type: isError ? "error-text" : "text", value: text };
  const pictures = images.map((image) => pictureOf(image, sdkVersion));
  return { type: "content", value: [{ type: "text", text }, ...pictures] };
}

function pictureOf({ mimeType, bytes }: ToolImage, sdkVersion: 6 | 7): AiImage {
  const data = base64Of(bytes);
  if (sdkVersion === 6) return { type: "image-data", mediaType: mimeType, data };
  return { type: "file", mediaType: mimeType, data: { type: "data", data } };
}
