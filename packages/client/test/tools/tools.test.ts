/** The suite of tool behaviour, without any framework in between; and what only the library shows. */

import { expect, test } from "vitest";
import { sandlotTools, type ToolOutput } from "../../src/tools/index.ts";
import { describeTools, type ToolReply } from "../adapters/tool-suite.ts";
import { openToolStage } from "./tool-stage.ts";

describeTools({
  name: "the library",
  async open(stage, thread, policy = {}) {
    const tools = sandlotTools(stage.fleet, { thread, ...policy });
    return {
      call: async (tool, input) => replyOf(await tools.call(tool, input)),
      [Symbol.asyncDispose]: () => tools.end(),
    };
  },
});

function replyOf({ text, isError, images }: ToolOutput): ToolReply {
  return {
    text,
    isError,
    images: images.map(({ mimeType, bytes }) => ({ mimeType, base64: Buffer.from(bytes).toString("base64") })),
  };
}

test("every output has a code that programs can act on", async () => {
  await using stage = await openToolStage();
  await using tools = sandlotTools(stage.fleet, { thread: "t1" });
  const codes = async (tool: string, input: unknown) => (await tools.call(tool, input)).code;
  expect(await codes("bash", { command: "true" })).toBeNull();
  expect(await codes("bash", { command: "false" })).toBe("command_failed");
  expect(await codes("bash", { command: "sleep 9", timeout_seconds: 0.05 })).toBe("command_timed_out");
  expect(await codes("bash", { command: "echo x | bash" })).toBe("command_blocked");
  expect(await codes("bash", {})).toBe("invalid_arguments");
  expect(await codes("read_file", { path: "/none" })).toBe("file_not_found");
  expect(await codes("teleport", {})).toBe("unknown_tool");
  const { facts } = await tools.call("bash", { command: "echo out; echo err >&2; exit 2" });
  expect(facts).toMatchObject({ status: "completed", exitCode: 2, stdout: "out\n", stderr: "err\n" });
});

test("twelve parallel edits of one file: each is made or refused, none is lost", async () => {
  await using stage = await openToolStage();
  await using first = sandlotTools(stage.fleet, { thread: "t1" });
  const path = "/mnt/user-data/workspace/shared";
  await first.call("write_file", {
    path,
    content: Array.from({ length: 12 }, (_, n) => `line ${n}: todo;\n`).join(""),
  });
  const made = await Promise.all(
    Array.from({ length: 12 }, async (_, n) => {
      await using tools = sandlotTools(stage.fleet, { thread: "t1" });
      for (let attempt = 0; attempt < 50; attempt++) {
        await tools.call("read_file", { path });
        const { code } = await tools.call("str_replace", {
          path,
          old_str: `line ${n}: todo;`,
          new_str: `line ${n}: done;`,
        });
        if (code === null) return attempt;
        expect(code).toBe("read_first");
      }
      throw new Error("never its turn");
    }),
  );
  expect(made).toHaveLength(12);
  expect((await first.call("read_file", { path })).text.match(/done/g)).toHaveLength(12);
});

test("the audit tells what it saw, without secrets", async () => {
  await using stage = await openToolStage();
  const seen: unknown[] = [];
  await using tools = sandlotTools(stage.fleet, {
    thread: "t1",
    secrets: { TOKEN: "s3cr3t-value-0815" },
    onAudit: (entry) => seen.push(entry),
  });
  await tools.call("bash", { command: "echo s3cr3t-value-0815" });
  await tools.call("bash", { command: "cat /etc/shadow" });
  expect(seen).toEqual([
    { thread: "t1", command: "echo [redacted]", verdict: "pass", rule: null, reason: null },
    {
      thread: "t1",
      command: "cat /etc/shadow",
      verdict: "block",
      rule: "password-hashes",
      reason: "reads password hashes",
    },
  ]);
});
