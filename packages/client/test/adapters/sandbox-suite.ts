/**
 * The suite for a framework that brings its own tools for a sandbox. The framework's fake model uses the framework's
 * tools; a driver says which of them runs a command and which reads, writes and edits a file.
 */

import { describe, expect, test } from "vitest";
import type { ToolStage } from "../tools/tool-stage.ts";
import type { Scenes } from "./scenes.ts";

/** One run of an agent. Each action is a tool call; its result is the model's input. */
export interface SandboxAgent extends AsyncDisposable {
  run(command: string): Promise<string>;
  write(path: string, content: string): Promise<string>;
  read(path: string): Promise<string>;
  edit(path: string, before: string, after: string): Promise<string>;
  /** The model throws; resolves when the run has failed. */
  fail(): Promise<void>;
}

export interface SandboxDriver {
  readonly name: string;
  open(stage: ToolStage, thread: string, signal?: AbortSignal): Promise<SandboxAgent>;
}

const WORKSPACE = "/mnt/user-data/workspace";

function wasTold(answer: string): boolean {
  return answer.includes("The sandbox was replaced by a new one. Lost: processes, temporary files.");
}

type Use = (agent: SandboxAgent, stage: ToolStage, thread: string) => Promise<void>;

export function describeSandbox(driver: SandboxDriver, scenes: Scenes): void {
  describe(`${driver.name} on ${scenes.name}`, () => {
    async function withAgent(use: Use) {
      await using scene = await scenes.open();
      const { stage, thread } = scene;
      {
        await using agent = await driver.open(stage, thread);
        await use(agent, stage, thread);
      }
      await stage.expectNoLease();
    }

    test("runs commands and shows output, errors and exit codes", () =>
      withAgent(async (agent) => {
        const answer = await agent.run("echo out; echo err >&2; pwd; exit 3");
        expect(answer).toContain("out\n");
        expect(answer).toContain("err\n");
        expect(answer).toContain(WORKSPACE);
        expect(answer).toMatch(/\b3\b/);
      }));

    test("files and commands see the same", () =>
      withAgent(async (agent) => {
        await agent.write(`${WORKSPACE}/dir/a.txt`, "from the tool\n");
        expect(await agent.run("cat dir/a.txt")).toContain("from the tool");
        await agent.run("echo from a command > b.txt");
        expect(await agent.read(`${WORKSPACE}/b.txt`)).toContain("from a command");
      }));

    test("edits a file", () =>
      withAgent(async (agent) => {
        const path = `${WORKSPACE}/code.py`;
        await agent.write(path, "a = 1\nb = 2\n");
        await agent.edit(path, "a = 1\n", "a = 3\n");
        expect(await agent.run("cat code.py")).toContain("a = 3\nb = 2");
      }));

    test("a missing file is an answer, not the end", () =>
      withAgent(async (agent) => {
        expect(await agent.read(`${WORKSPACE}/none.txt`)).toMatch(/not found|not exist|No such/i);
        expect(await agent.run("echo on")).toContain("on");
      }));

    test("each thread has its own files, and two runs of one thread the same", () =>
      withAgent(async (agent, stage, thread) => {
        await agent.write(`${WORKSPACE}/mine.txt`, "mine\n");
        await using same = await driver.open(stage, thread);
        await using other = await driver.open(stage, `${thread}-other`);
        expect(await same.run("cat mine.txt")).toContain("mine");
        expect(await other.run("ls | wc -l")).toMatch(/\b0\b/);
      }));

    test("a sandbox that dies between two calls is replaced, with its files, and the model reads what was lost", () =>
      withAgent(async (agent, stage, thread) => {
        await agent.write(`${WORKSPACE}/kept.txt`, "kept\n");
        await agent.run("echo lost > /tmp/lost");
        await stage.kill(thread);
        const read = await agent.read(`${WORKSPACE}/kept.txt`);
        expect(read).toContain("kept");
        const told = await agent.run("test -e /tmp/lost || echo new");
        expect(told).toContain("new");
        // The OpenAI SDK reads with commands, which were reported already.
        if (!wasTold(read)) expect(told).toSatisfy(wasTold);
        expect(await agent.run("echo on")).not.toSatisfy(wasTold);
      }));

    test("a sandbox that dies under a command is an error, and the next call works", () =>
      withAgent(async (agent, stage, thread) => {
        await agent.run("true");
        const call = agent.run("sleep 60");
        await new Promise((resolve) => setTimeout(resolve, 100));
        await stage.kill(thread);
        expect(await call).toMatch(/gone|lost/);
        expect(await agent.run("echo on")).toContain("on");
      }));

    test("the lease is taken at the first use", async () => {
      await using scene = await scenes.open();
      const { stage, thread } = scene;
      {
        await using _agent = await driver.open(stage, thread);
      }
      expect(stage.events.filter(({ type }) => type === "lease-acquired")).toEqual([]);
    });

    test("the lease is given back when the model fails", async () => {
      await using scene = await scenes.open();
      const { stage, thread } = scene;
      const agent = await driver.open(stage, thread);
      await agent.run("true");
      expect(stage.leaseCount()).toBe(1);
      await agent.fail();
      await expect.poll(() => stage.leaseCount()).toBe(0);
    });

    test("the lease is given back when the run is aborted under a command", async () => {
      await using scene = await scenes.open();
      const { stage, thread } = scene;
      const abort = new AbortController();
      const agent = await driver.open(stage, thread, abort.signal);
      await agent.run("true");
      const call = agent.run("sleep 60").catch(() => "aborted");
      await new Promise((resolve) => setTimeout(resolve, 50));
      abort.abort(new Error("enough"));
      await call;
      await expect.poll(() => stage.leaseCount()).toBe(0);
    });
  });
}
