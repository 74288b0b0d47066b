/** Paths as a model writes them. */

import { DEFAULT_CWD, SandlotError } from "@sandlot/contract";
import { z } from "zod";

export const pathInput = (what: string) =>
  z.string().min(1).describe(`${what} Absolute; a relative path is below ${DEFAULT_CWD}.`);

/** First argument of every tool: makes the model state its purpose, which people read in transcripts. */
export const descriptionInput = z
  .string()
  .optional()
  .describe("Why you make this call, in a few words. Give it first.");

/** How many results; a value out of range is clamped, so the range is for the schema alone. */
export const maxResultsInput = (standard: number, max: number) =>
  z.int().default(standard).describe(`At most ${max}.`).meta({ minimum: 1, maximum: max });

/** An absolute path without `.` and `..`. A relative one is below `directory`. */
export function absolutePath(path: string, directory: string = DEFAULT_CWD): string {
  if (path.includes("\0")) throw new SandlotError("invalid_path", { path, problem: "it contains a NUL byte" });
  const parts: string[] = [];
  for (const part of (path.startsWith("/") ? path : `${directory}/${path}`).split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

/** Whether a normalized path is the directory or below it. */
export function isWithin(path: string, directory: string): boolean {
  return path === directory || path.startsWith(`${directory}/`);
}
