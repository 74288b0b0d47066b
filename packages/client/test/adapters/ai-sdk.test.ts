/** The AI SDK: leases of our tools, and the sandbox session of version 7. */

import { generateText, isStepCount, tool } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { sandlotSession } from "../../src/ai-sdk/index.ts";
import { openToolStage } from "../tools/tool-stage.ts";
import { puppeteer } from "./ai-puppeteer.ts";
import { startAiSdk7 as start7 } from "./drivers/ai-sdk.ts";
import { ModelScript } from "./model-script.ts";
import type { ToolReply } from "./tool-suite.ts";

describe("tools of the AI SDK", () => {
  test("give the lease back when the model fails", async () => {
    await using stage = await openToolStage();
    const { script, run } = start7(stage, "t1");
    await script.call("bash", { command: "true" });
    script.fail(new Error("model is down"));
    await expect(run).rejects.toThrow("model is down");
    expect(stage.leaseCount()).toBe(0);
  });

  test("give the lease back when the run is aborted under a command", async () => {
    await using stage = await openToolStage();
    const abort = new AbortController();
    const { script, run } = start7(stage, "t1", {}, abort.signal);
    await script.call("bash", { command: "true" });
    script.call("bash", { command: "sleep 60" }).catch(() => undefined);
    abort.abort();
    await expect(run).rejects.toThrow();
    await expect.poll(() => stage.leaseCount()).toBe(0);
  });
});

const text = (bytes: Uint8Array | null) => new TextDecoder().decode(bytes ?? new Uint8Array());

async function readAll(stream: ReadableStream<Uint8Array> | null | undefined): Promise<string> {
  let all = "";
  for await (const piece of stream ?? []) all += text(piece);
  return all;
}

describe("the sandbox session of AI SDK 7", () => {
  test("runs commands", async () => {
    await using stage = await openToolStage();
    await using session = sandlotSession(stage.fleet, { thread: "t1" });
    expect(await session.run({ command: "pwd; echo err >&2; exit 3" })).toEqual({
      exitCode: 3,
      stdout: "/mnt/user-data/workspace\n",
      stderr: "err\n",
    });
    const { stdout } = await session.run({ command: 'pwd; echo "$X"', workingDirectory: "/tmp", env: { X: "y" } });
    expect(stdout).toBe("/tmp\ny\n");
    await expect(session.run({ command: "sleep 9", abortSignal: AbortSignal.timeout(50) })).rejects.toThrow();
  });

  test("reads and writes files; what is missing is null", async () => {
    await using stage = await openToolStage();
    await using session = sandlotSession(stage.fleet, { thread: "t1" });
    await session.writeTextFile({ path: "a/b.txt", content: "one\ntwo\nthree\n" });
    expect(await session.readTextFile({ path: "/mnt/user-data/workspace/a/b.txt" })).toBe("one\ntwo\nthree\n");
    expect(await session.readTextFile({ path: "a/b.txt", startLine: 2, endLine: 2 })).toBe("two");
    expect(await session.readTextFile({ path: "a/b.txt", startLine: 3, endLine: 99 })).toBe("three\n");
    expect(text(await session.readBinaryFile({ path: "a/b.txt" }))).toContain("two");
    expect(await readAll(await session.readFile({ path: "a/b.txt" }))).toBe("one\ntwo\nthree\n");
    await session.writeFile({ path: "c", content: ReadableStream.from([new Uint8Array([1]), new Uint8Array([2])]) });
    expect([...((await session.readBinaryFile({ path: "c" })) ?? [])]).toEqual([1, 2]);
    await session.writeBinaryFile({ path: "c", content: new Uint8Array([3]) });
    expect(await session.stat({ path: "c" })).toEqual({ type: "file", size: 1 });
    await session.run({ command: "ln -s a link; ln -s nowhere broken" });
    expect(await session.stat({ path: "link" })).toMatchObject({ type: "directory" });
    expect(await session.listDirectory({ path: "." })).toEqual(
      expect.arrayContaining([
        { name: "a", type: "directory" },
        { name: "c", type: "file" },
        { name: "link", type: "symlink" },
      ]),
    );
    expect(await session.deleteFile({ path: "link" })).toBe(true);
    expect(await session.deleteFile({ path: "link" })).toBe(false);
    expect(await session.stat({ path: "a/b.txt" })).toMatchObject({ type: "file" });
    for (const missing of ["readFile", "readBinaryFile", "readTextFile", "stat", "listDirectory"] as const)
      expect(await session[missing]({ path: "none" }), missing).toBeNull();
    expect(await session.stat({ path: "broken" })).toBeNull();
    await expect(session.deleteFile({ path: "a" })).rejects.toMatchObject({ code: "is_a_directory" });
    await expect(session.writeTextFile({ path: "a", content: "x" })).rejects.toThrow();
    await expect(session.listDirectory({ path: "c" })).rejects.toMatchObject({ code: "not_a_directory" });
    await expect(session.readFile({ path: "a" })).rejects.toMatchObject({ code: "is_a_directory" });
  });

  test("refuses to read as text what is not UTF-8, unless an encoding is named", async () => {
    await using stage = await openToolStage();
    await using session = sandlotSession(stage.fleet, { thread: "t1" });
    await session.writeTextFile({ path: "t", content: "é", encoding: "latin1" });
    await expect(session.readTextFile({ path: "t" })).rejects.toMatchObject({ code: "file_not_text" });
    expect(await session.readTextFile({ path: "t", encoding: "latin1" })).toBe("é");
  });

  test("writes texts in other encodings, and refuses what they cannot hold", async () => {
    await using stage = await openToolStage();
    await using session = sandlotSession(stage.fleet, { thread: "t1" });
    for (const encoding of ["utf-8", "utf-16le", "latin1"]) {
      await session.writeTextFile({ path: "t", content: "äöü é", encoding });
      expect(await session.readTextFile({ path: "t", encoding }), encoding).toBe("äöü é");
    }
    for (const encoding of ["ascii", "koi8-r"])
      await expect(session.writeTextFile({ path: "t", content: "ä", encoding })).rejects.toMatchObject({
        code: "invalid_request",
      });
  });

  test("an aborted write ends, leaves nothing behind, and lets the next one write", async () => {
    await using stage = await openToolStage();
    await using session = sandlotSession(stage.fleet, { thread: "t1" });
    await session.writeTextFile({ path: "kept", content: "before" });
    let cancelled = false;
    const content = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(new Uint8Array(10)),
      cancel: () => {
        cancelled = true;
      },
    });
    const abort = new AbortController();
    const write = session.writeFile({ path: "kept", content, abortSignal: abort.signal });
    setTimeout(() => abort.abort(new Error("enough")), 50);
    await expect(write).rejects.toThrow();
    expect(cancelled).toBe(true);
    expect(await session.readTextFile({ path: "kept" })).toBe("before");
    await session.writeTextFile({ path: "kept", content: "after" });
    const gone = { path: "kept", abortSignal: AbortSignal.abort(new Error("gone")) };
    await expect(session.readTextFile(gone)).rejects.toThrow("gone");
  });

  test("spawns processes, with streams and with an input", async () => {
    await using stage = await openToolStage();
    await using session = sandlotSession(stage.fleet, { thread: "t1" });
    const plain = await session.spawn({ command: "echo one; echo two >&2; exit 5" });
    expect(await readAll(plain.stdout)).toBe("one\n");
    expect(await readAll(plain.stderr)).toBe("two\n");
    expect(await plain.wait()).toEqual({ exitCode: 5 });
    expect("stdin" in plain).toBe(false);
    const cat = await session.spawn({ command: "cat", stdin: true });
    const writer = cat.stdin.getWriter();
    await writer.write(new TextEncoder().encode("hello "));
    await writer.write(new TextEncoder().encode("there"));
    await writer.close();
    expect(await readAll(cat.stdout)).toBe("hello there");
    const sleeper = await session.spawn({ command: "sleep 60" });
    await sleeper.kill();
    await sleeper.kill();
    expect((await sleeper.wait()).exitCode).toBe(137);
    const abort = new AbortController();
    const aborted = await session.spawn({ command: "sleep 60", abortSignal: abort.signal });
    const over = await session.spawn({ command: "true", abortSignal: abort.signal });
    expect(await over.wait()).toEqual({ exitCode: 0 });
    abort.abort(new Error("enough"));
    await expect(aborted.wait()).rejects.toThrow("enough");
    expect(await over.wait()).toEqual({ exitCode: 0 });
  });

  test("is what tools of version 7 get, survives a lost sandbox, and leaves no lease", async () => {
    await using stage = await openToolStage();
    {
      await using session = sandlotSession(stage.fleet, { thread: "t1" });
      await session.writeTextFile({ path: "kept", content: "kept" });
      await stage.kill("t1");
      const cat = tool({
        inputSchema: z.object({ path: z.string() }),
        execute: async ({ path }, { experimental_sandbox: sandbox }) =>
          (await sandbox?.readTextFile({ path })) ?? "missing",
      });
      const script = new ModelScript<ToolReply>();
      const turn = puppeteer(script);
      const model = new MockLanguageModelV4({ doGenerate: (({ prompt }: { prompt: never }) => turn(prompt)) as never });
      const run = generateText({
        model,
        tools: { cat },
        prompt: "go",
        stopWhen: isStepCount(5),
        experimental_sandbox: session,
      });
      expect((await script.call("cat", { path: "kept" })).text).toBe("kept");
      script.end();
      await run;
      expect(stage.leaseCount()).toBe(1);
    }
    expect(stage.leaseCount()).toBe(0);
  });
});
