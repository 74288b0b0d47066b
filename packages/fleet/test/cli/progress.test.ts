/** A terminal during a long command: one line that is rewritten, and goes. */

import { expect, test } from "vitest";
import { withProgress, withPullProgress } from "../../src/cli/progress.ts";
import type { ImagePull } from "../../src/cli/target.ts";
import type { Terminal } from "../../src/cli/terminal.ts";

async function shown(isWatched: boolean, workMs: number): Promise<string> {
  let printed = "";
  const write = async (_stream: string, bytes: Uint8Array) => {
    printed += Buffer.from(bytes).toString();
    return true;
  };
  let asked = 0;
  const work = () => new Promise<string>((resolve) => setTimeout(() => resolve("done"), workMs));
  const result = await withProgress({ write, isWatched } as Terminal, () => `Waiting, look ${++asked}`, work);
  expect(result).toBe("done");
  return printed;
}

test("a terminal shows progress after a second, repeatedly, and the line is removed at the end", async () => {
  const printed = await shown(true, 1_600);
  expect(printed).toContain("\r\x1b[KWaiting, look 1 (1 s)");
  expect(printed).toContain("Waiting, look 2");
  expect(printed.endsWith("\r\x1b[K")).toBe(true);
});

test("nothing is written for short work, nor where no terminal is", async () => {
  expect(await shown(true, 10)).toBe("");
  expect(await shown(false, 1_300)).toBe("");
});

test("while an image is fetched the line says how far it is, and afterwards what is waited for", async () => {
  let printed = "";
  const write = async (_stream: string, bytes: Uint8Array) => {
    printed += Buffer.from(bytes).toString();
    return true;
  };
  const terminal = { isWatched: true, write } as unknown as Terminal;
  let tell = (_state: ImagePull["state"], _currentBytes: number, _totalBytes: number): void => {};
  let listeners = 0;
  const onPull = (listener: (pull: ImagePull) => void) => {
    listeners += 1;
    tell = (state, currentBytes, totalBytes) =>
      listener({ type: "image-pulling", image: "an/image:1", state, currentBytes, totalBytes } as ImagePull);
    return () => {
      listeners -= 1;
    };
  };
  const seen = (text: string) => expect.poll(() => printed, { timeout: 10_000 }).toContain(text);
  const work = async () => {
    tell("started", 0, 0);
    await seen("\r\x1b[KFetching the image an/image:1: 0B (1 s)");
    tell("progress", 3 * 1024 * 1024, 12 * 1024 * 1024);
    await seen("\r\x1b[KFetching the image an/image:1: 3MiB of 12MiB (");
    tell("pulled", 12 * 1024 * 1024, 12 * 1024 * 1024);
    await seen("\r\x1b[KWaiting for it (");
    return "done";
  };
  expect(await withPullProgress(terminal, { onPull }, "Waiting for it", work)).toBe("done");
  expect([listeners, printed.endsWith("\r\x1b[K")]).toEqual([0, true]);
  expect(await withPullProgress(terminal, {}, "Waiting for it", async () => "done")).toBe("done");
});
