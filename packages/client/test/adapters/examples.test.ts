/** The examples run as a reader would run them, and print the promised output. */

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { APP_ID, APP_SECRET, FeishuStandIn, waitFor } from "../../../fleet/test/channels/feishu-platform.ts";

const EXAMPLES = join(import.meta.dirname, "../../../../examples");

/** The Node of this repository, also where the tests run on an older one without `await using`. */
const PINNED_NODE = join(EXAMPLES, "../node_modules/.bin/node");
const NODE = existsSync(PINNED_NODE) ? PINNED_NODE : process.execPath;

function start(name: string, home: string, environment: Record<string, string> = {}) {
  const child = spawn(NODE, [join(EXAMPLES, "run.mjs"), name.replace(/\.ts$/, "")], {
    env: { ...process.env, ...environment, SANDLOT_HOME: home },
    stdio: "pipe",
  });
  const output: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (piece: string) => output.push(piece));
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  return { child, ended, output: () => output.join("") };
}

async function withHome(use: (home: string) => Promise<void>): Promise<void> {
  const home = mkdtempSync(join(tmpdir(), "sandlot-examples-"));
  try {
    await use(home);
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

const EXPECTED: Readonly<Record<string, readonly string[]>> = {
  "tools.ts": ["Hello, World", "token: [redacted]", "Good morning, World", "greeting.txt (20 bytes)"],
  "langchain.ts": ["tool: 42", "ai: The sum is 42."],
  "deepagents.ts": ["tool: 42", "ai: The sum is 42."],
  "ai-sdk.ts": ["bash: 42", "The sum is 42."],
  "ai-sdk-session.ts": ['"stdout":"42\\n"', "The sum is 42."],
  "openai-agents.ts": ["Created sum.sh", "42", "The sum is 42."],
  "mastra.ts": ["execute_command: ", "42", "The sum is 42."],
};

describe("examples", { timeout: 120_000 }, () => {
  test("all are here, in the list and in these tests", () => {
    const files = readdirSync(EXAMPLES).filter((name) => name.endsWith(".ts") && name !== "scripted-model.ts");
    expect(files.toSorted()).toEqual([...Object.keys(EXPECTED), "feishu-bot.ts"].toSorted());
    const list = readFileSync(join(EXAMPLES, "README.md"), "utf8");
    for (const name of files) expect(list).toContain(`(${name})`);
    // One command, which bootstrap makes work in a fresh clone.
    expect(list).toContain("\nnpm run example langchain\n");
  });

  test("an unknown example is refused with a list of the known ones", () =>
    withHome(async (home) => {
      const example = start("teleport.ts", home);
      expect(await example.ended).toBe(2);
      expect(example.output()).toMatch(/^There is no example teleport: .*langchain.*tools/);
    }));

  test.each(Object.entries(EXPECTED))("%s", (name, expected) =>
    withHome(async (home) => {
      const example = start(name, home);
      expect(await example.ended, example.output()).toBe(0);
      for (const text of expected) expect(example.output()).toContain(text);
    }),
  );

  test("feishu-bot.ts", () =>
    withHome(async (home) => {
      await using platform = new FeishuStandIn();
      const domain = await platform.listen();
      platform.files.set("om_1/key_1", { content: Buffer.from("numbers") });
      const bot = start("feishu-bot.ts", home, {
        FEISHU_APP_ID: APP_ID,
        FEISHU_APP_SECRET: APP_SECRET,
        FEISHU_DOMAIN: domain,
      });
      try {
        await platform.connected(60_000);
        await platform.push({
          schema: "2.0",
          header: { event_id: "ev_1", event_type: "im.message.receive_v1", tenant_key: "t" },
          event: {
            sender: { sender_id: { open_id: "ou_1" }, sender_type: "user" },
            message: {
              ...{ message_id: "om_1", chat_id: "oc_1", chat_type: "p2p", message_type: "file" },
              content: JSON.stringify({ file_key: "key_1", file_name: "numbers.csv" }),
            },
          },
        });
        await waitFor(() => platform.replies.length === 1, 60_000);
        expect(platform.replies[0]?.text).toContain("You said: /mnt/user-data/uploads/numbers.csv");
        expect(platform.replies[0]?.text).toMatch(/Your files:\n\/mnt\/user-data\/uploads\/numbers\.csv · 7 bytes/);
        bot.child.kill("SIGTERM");
        expect(await bot.ended, bot.output()).toBe(0);
      } finally {
        bot.child.kill("SIGKILL");
      }
    }));
});
