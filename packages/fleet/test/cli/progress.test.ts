/** What a terminal shows while a command takes long: one line that is rewritten, and goes. */

import { expect, test } from "vitest";
import { withProgress } from "../../src/cli/progress.ts";
import type { Terminal } from "../../src/cli/terminal.ts";

async function shown(isWatched: boolean, workMs: number): Promise<string> {
  let printed = "";
  const error = (text: string) => {
    printed += text;
  };
  let asked = 0;
  const work = () => new Promise<string>((resolve) => setTimeout(() => resolve("done"), workMs));
  const result = await withProgress({ error, isWatched } as Terminal, () => `Waiting, look ${++asked}`, work);
  expect(result).toBe("done");
  return printed;
}

test("a terminal is told after a second, again and again, and the line goes at the end", async () => {
  const printed = await shown(true, 1_600);
  expect(printed).toContain("\r\x1b[KWaiting, look 1 (1 s)");
  expect(printed).toContain("Waiting, look 2");
  expect(printed.endsWith("\r\x1b[K")).toBe(true);
});

test("nothing is written for short work, nor where no terminal is", async () => {
  expect(await shown(true, 10)).toBe("");
  expect(await shown(false, 1_300)).toBe("");
});
