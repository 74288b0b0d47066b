/** Sandboxes for the OpenAI Agents SDK, driven by its scripted model through its own shell and file tools. */

import { dir, file, Manifest } from "@openai/agents/sandbox";
import { describe, expect, test } from "vitest";
import { SandlotSandboxClient } from "../../src/openai-agents/index.ts";
import { openToolStage } from "../tools/tool-stage.ts";
import { startOpenAi as startAgent } from "./drivers/openai-agents.ts";

describe("the OpenAI Agents client", () => {
  test("lets a long command go on, to be read and written to", async () => {
    await using stage = await openToolStage();
    const { script, running } = startAgent(new SandlotSandboxClient(stage.fleet), "t1");
    const begun = await script.call("exec_command", { cmd: "echo ready; cat; echo bye", yield_time_ms: 100 });
    expect(begun).toContain("Output:\nready\n");
    const session_id = Number(/session ID (\d+)/.exec(begun)?.[1]);
    expect(await script.call("write_stdin", { session_id, chars: "hello\n", yield_time_ms: 100 })).toMatch(
      /ID \d+\nOutput:\nhello\n$/,
    );
    expect(await script.call("write_stdin", { session_id, yield_time_ms: 20 })).toMatch(/Output:\n$/);
    expect(await script.call("write_stdin", { session_id: 99 })).toContain("There is no exec 99");
    const slow = await script.call("exec_command", { cmd: "sleep 0.3; echo slept", yield_time_ms: 50 });
    const slowId = Number(/session ID (\d+)/.exec(slow)?.[1]);
    expect(await script.call("write_stdin", { session_id: slowId, yield_time_ms: 5_000 })).toMatch(
      /code 0\nOutput:\nslept\n$/,
    );
    const long = await script.call("exec_command", { cmd: "seq 1 10000", max_output_tokens: 100 });
    expect(long.length).toBeLessThan(700);
    expect(long).toMatch(/characters left out/);
    script.end();
    await running;
  });

  test("puts an application's files into the workspace, and refuses what it cannot fetch", async () => {
    await using stage = await openToolStage();
    const client = new SandlotSandboxClient(stage.fleet);
    const manifest = new Manifest({
      entries: {
        "notes.md": file({ content: "# Notes" }),
        src: dir({ children: { "a.py": file({ content: "print(1)" }) } }),
      },
      environment: { GREETING: "hello" },
    });
    const { script, running } = startAgent(client, "t1", undefined, manifest);
    expect(await script.call("exec_command", { cmd: 'cat notes.md src/a.py; echo " $GREETING"' })).toContain(
      "# Notesprint(1) hello",
    );
    script.end();
    await running;
    const foreign = new Manifest({ entries: { repo: { type: "git_repo", repo: "a/b" } } });
    await expect(client.create({ manifest: foreign, options: { thread: "t2" } })).rejects.toMatchObject({
      code: "invalid_request",
    });
    await expect(client.create({})).rejects.toMatchObject({ code: "invalid_request" });
  });

  test("answers what the SDK asks of a session, and comes back from what was kept of it", async () => {
    await using stage = await openToolStage();
    const client = new SandlotSandboxClient(stage.fleet, { user: "ann" });
    const session = await client.create({ options: { thread: "t1" } });
    const png = Buffer.from(
      "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
      "base64",
    );
    await session.materializeEntry({ path: "dot.png", entry: file({ content: png }) });
    expect(await session.viewImage({ path: "dot.png" })).toMatchObject({
      type: "image",
      image: { mediaType: "image/png" },
    });
    await session.execCommand({ cmd: "mkdir d; echo x > d/f" });
    await expect(session.viewImage({ path: "d/f" })).rejects.toThrow("unsupported image format");
    expect(new TextDecoder().decode(await session.readFile({ path: "d/f" }))).toBe("x\n");
    expect(await session.listDir({ path: "." })).toContainEqual({
      name: "d",
      path: "/mnt/user-data/workspace/d",
      type: "dir",
    });
    expect([
      await session.pathExists("d/f"),
      await session.pathExists("none"),
      await session.directoryExists("d"),
    ]).toEqual([true, false, true]);
    expect(await session.execCommand({ cmd: "true", tty: true })).toContain("there is no terminal here");
    await session.execCommand({ cmd: "ln -s d link; ln -s nowhere broken" });
    expect([await session.directoryExists("link"), await session.pathExists("broken")]).toEqual([true, false]);
    expect(await session.execCommand({ cmd: "echo $0", login: true })).toMatch(/code 0/);
    const another = { path: "d/f", runAs: "root" };
    for (const refused of [
      session.readFile(another),
      session.listDir(another),
      session.viewImage(another),
      session.pathExists("d/f", "root"),
      client.create({ options: { thread: "t2" }, snapshot: { type: "remote" } }),
    ])
      await expect(refused).rejects.toMatchObject({ code: "invalid_request" });
    // Patches of one turn that touch the same file are applied in sequence.
    await session.execCommand({ cmd: "seq 1 20 > n" });
    const editor = session.createEditor();
    const patched = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        editor.updateFile({ type: "update_file", path: "n", diff: `@@\n-${index + 1}\n+line ${index + 1}` }),
      ),
    );
    expect(patched.map((result) => result?.status)).toEqual(Array.from({ length: 20 }, () => "completed"));
    expect((await session.exec({ cmd: "grep -c line n" })).stdout).toBe("20\n");
    const kept = await client.serializeSessionState(session.state);
    await session.stop();
    await session.shutdown();
    await session.delete();
    await session.close();
    expect(stage.leaseCount()).toBe(0);
    const again = await client.resume(await client.deserializeSessionState(JSON.parse(JSON.stringify(kept))));
    expect((await again.exec({ cmd: "cat d/f" })).stdout).toBe("x\n");
    await again.close();
    await expect.poll(() => stage.leaseCount()).toBe(0);
  });
});
