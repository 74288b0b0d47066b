/** A sandbox as the backend of deep agents, driven by LangChain's fake model through deepagents' own tools. */

import { createDeepAgent } from "deepagents";
import { AIMessage, type BaseMessage, fakeModel } from "langchain";
import { describe, expect, test } from "vitest";
import { SandlotBackend } from "../../src/deepagents/index.ts";
import { openToolStage } from "../tools/tool-stage.ts";
import { startDeepAgent as startAgent } from "./drivers/deepagents.ts";

describe("the deepagents backend", () => {
  test("answers every method natively, with errors as answers", async () => {
    await using stage = await openToolStage();
    await using backend = new SandlotBackend(stage.fleet, { thread: "t1" });
    const root = "/mnt/user-data/workspace";
    expect(await backend.write(`${root}/a.txt`, "one\ntwo\nthree\n")).toEqual({
      path: `${root}/a.txt`,
      filesUpdate: null,
    });
    expect(await backend.read(`${root}/a.txt`, 1, 1)).toEqual({
      content: "two",
      mimeType: "text/plain",
      totalLines: 3,
      startLine: 2,
      endLine: 2,
      nextOffset: 2,
    });
    expect(await backend.read(`${root}/a.txt`)).toMatchObject({ content: "one\ntwo\nthree", endLine: 3 });
    expect(await backend.read(`${root}/none`)).toEqual({ error: `${root}/none does not exist.` });
    expect(await backend.read(`${root}/a.txt`, 9)).toMatchObject({ error: expect.stringContaining("exceeds") });
    expect(await backend.edit(`${root}/a.txt`, "o", "0")).toMatchObject({ error: expect.stringContaining("2 times") });
    expect(await backend.edit(`${root}/a.txt`, "o", "0", true)).toMatchObject({ occurrences: 2 });
    expect(await backend.edit(`${root}/a.txt`, "zzz", "0")).toMatchObject({
      error: expect.stringContaining("not found"),
    });
    expect(await backend.readRaw(`${root}/a.txt`)).toMatchObject({
      data: { content: "0ne\ntw0\nthree\n", mimeType: "text/plain" },
    });
    await backend.execute(`mkdir ${root}/d; printf 'x.y\\nxzy\\n' > ${root}/d/b.md; printf 'a\\000' > ${root}/bin`);
    expect((await backend.ls(root)).files?.map(({ path, is_dir }) => [path, is_dir])).toEqual([
      [`${root}/a.txt`, false],
      [`${root}/bin`, false],
      [`${root}/d/`, true],
    ]);
    expect(await backend.ls(`${root}/none`)).toMatchObject({ error: expect.any(String) });
    expect(await backend.grep("x.y", "/", "*.md")).toEqual({
      matches: [{ path: `${root}/d/b.md`, line: 1, text: "x.y" }],
      truncated: false,
    });
    expect((await backend.grep("t", root, null, 1)).truncated).toBe(true);
    expect((await backend.glob("**/*.md")).files).toEqual([{ path: `${root}/d/b.md`, is_dir: false }]);
    expect((await backend.read(`${root}/bin`)).content).toBeInstanceOf(Uint8Array);
    expect(
      await backend.uploadFiles([
        [`${root}/u`, new Uint8Array([7])],
        [`${root}/d`, new Uint8Array([7])],
      ]),
    ).toEqual([
      { path: `${root}/u`, error: null },
      { path: `${root}/d`, error: "is_directory" },
    ]);
    const downloads = await backend.downloadFiles([`${root}/u`, `${root}/none`]);
    expect(downloads.map(({ content, error }) => [content?.[0], error])).toEqual([
      [7, null],
      [undefined, "file_not_found"],
    ]);
    expect(await backend.delete(`${root}/d`)).toMatchObject({ path: `${root}/d` });
    expect(await backend.delete(`${root}/d`)).toMatchObject({ error: expect.any(String) });
    expect(await backend.execute("echo out; echo err >&2; exit 3")).toEqual({
      output: "out\nerr\n",
      exitCode: 3,
      truncated: false,
    });
  });

  test("edits of one file that a model makes in one turn are made one after the other, and none is lost", async () => {
    await using stage = await openToolStage();
    await using backend = new SandlotBackend(stage.fleet, { thread: "t1" });
    await using other = new SandlotBackend(stage.fleet, { thread: "t1" });
    const path = "/mnt/user-data/workspace/n";
    const numbers = Array.from({ length: 20 }, (_, index) => index + 1);
    await backend.write(path, numbers.map((n) => `<${n}>`).join("\n"));
    const edits = numbers.map((n) => (n % 2 === 0 ? backend : other).edit(path, `<${n}>`, `line ${n}`));
    expect((await Promise.all(edits)).filter(({ error }) => error !== undefined)).toEqual([]);
    expect((await backend.execute("grep -c line n")).output).toBe("20\n");
  });

  test("keeps what deepagents puts aside, under the name it gave", async () => {
    await using stage = await openToolStage();
    const { script, run } = startAgent(new SandlotBackend(stage.fleet), "t1");
    await script.call("write_file", { file_path: "/large_tool_results/x.txt", content: "aside" });
    expect(await script.call("read_file", { file_path: "/large_tool_results/x.txt" })).toContain("aside");
    expect(await script.call("ls", { path: "/large_tool_results" })).toContain("/large_tool_results/x.txt");
    expect(await script.call("execute", { command: "ls -a" })).toContain(".deepagents");
    script.end();
    await run;
  });

  test("a sub-agent works in the same sandbox with a lease of its own, and its end does not end the parent's", async () => {
    await using stage = await openToolStage();
    const backend = new SandlotBackend(stage.fleet);
    const model = fakeModel()
      .respondWithTools([{ name: "execute", args: { command: "echo parent > p" } }])
      .respondWithTools([{ name: "task", args: { description: "look", subagent_type: "general-purpose" } }])
      .respondWithTools([{ name: "execute", args: { command: "cat p; echo child > c" } }])
      .respond(new AIMessage("the child saw it"))
      .respondWithTools([{ name: "execute", args: { command: "cat c" } }])
      .respond(new AIMessage("done"));
    const agent = createDeepAgent({ model, backend, middleware: [backend.middleware] });
    const { messages } = await agent.invoke(
      { messages: [{ role: "user", content: "go" }] },
      { configurable: { thread_id: "t1" } },
    );
    const told = (messages as BaseMessage[]).filter(({ type }) => type === "tool").map(({ text }) => text);
    expect(told[1]).toContain("the child saw it");
    expect(told[2]).toContain("child");
    const leases = stage.events.filter(({ type }) => type === "lease-acquired" || type === "lease-released");
    expect(leases.map(({ type }) => type.slice(6))).toEqual(["acquired", "acquired", "released", "released"]);
    expect(stage.events.filter(({ type }) => type === "sandbox-created")).toHaveLength(1);
    expect(stage.leaseCount()).toBe(0);
  });
});
