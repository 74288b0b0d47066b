/**
 * `sandlot mcp --workspace DIR --mount DIR[:ro]`, as a coding agent starts it: over standard input and output, with the
 * person's own directories.
 */

import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { chownSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, expect, it, onTestFinished } from "vitest";
import { asOrdinaryUser, ORDINARY, ordinaryNode, seenByOrdinaryUser } from "../support/ordinary-user.ts";
import { MAIN } from "./run-cli.ts";

const isRoot = process.getuid?.() === 0;

/** A person's project, and their other files, in one directory. */
function person(uid: number) {
  const directory = mkdtempSync(join(tmpdir(), "sl-person-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  for (const name of ["home", "project", "project/src", "notes"]) mkdirSync(join(directory, name), { mode: 0o700 });
  writeFileSync(join(directory, "project/src/main.txt"), "theirs\n", { mode: 0o600 });
  writeFileSync(join(directory, "notes/read.txt"), "a note\n", { mode: 0o644 });
  const own = ["project/src/main.txt", "notes/read.txt", "project/src", "project", "notes", "home", "."];
  if (isRoot) for (const name of own) chownSync(join(directory, name), uid, uid);
  return directory;
}

/** One connection of an agent. */
class Agent {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #answers = new Map<number, (message: { result?: never; error?: unknown }) => void>();
  said = "";
  #lastId = 0;

  constructor([program, ...args]: readonly string[], home: string) {
    const env = { PATH: process.env.PATH ?? "", SANDLOT_HOME: home, HOME: home };
    this.#child = spawn(program ?? "", args, { env, cwd: "/" });
    this.#child.stderr.on("data", (chunk: Buffer) => {
      this.said += chunk.toString();
    });
    createInterface({ input: this.#child.stdout }).on("line", (line) => {
      const message = JSON.parse(line);
      this.#answers.get(message.id)?.(message);
    });
  }

  ask(method: string, params: unknown): Promise<Record<string, unknown>> {
    const id = ++this.#lastId;
    this.#child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    return new Promise((resolve, reject) => {
      this.#answers.set(id, ({ result, error }) =>
        error === undefined ? resolve(result ?? {}) : reject(new Error(JSON.stringify(error))),
      );
      this.#child.once("exit", () => reject(new Error(`it ended: ${this.said}`)));
    });
  }

  async begin(): Promise<string> {
    const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } };
    const { instructions } = await this.ask("initialize", params);
    this.#child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" })}\n`);
    return String(instructions);
  }

  async call(name: string, args: unknown): Promise<string> {
    const { content } = await this.ask("tools/call", { name, arguments: args });
    return (content as { text: string }[]).map(({ text }) => text).join();
  }

  async end(): Promise<void> {
    this.#child.stdin.end();
    await new Promise((resolve) => (this.#child.exitCode === null ? this.#child.once("exit", resolve) : resolve(null)));
  }
}

const FLAGS = ["--conditions=sandlot-source", "--no-warnings"];

async function works(
  start: (args: readonly string[]) => readonly string[],
  directory: string,
  owner: number,
): Promise<void> {
  const [project, notes] = [join(directory, "project"), join(directory, "notes")];
  const agent = new Agent(start(["mcp", "--workspace", project, "--mount", `${notes}:ro`]), join(directory, "home"));
  try {
    expect(await agent.begin()).toContain("Work in /mnt/project");
    expect(await agent.call("bash", { command: "pwd; cat src/main.txt; cat /mnt/notes/read.txt" })).toContain(
      "/mnt/project\ntheirs\na note",
    );
    expect(await agent.call("write_file", { path: "src/made.txt", content: "by the agent\n" })).toBe("OK");
    expect(
      await agent.call("bash", { command: "echo more >>src/main.txt && mkdir build && touch build/one" }),
    ).toContain("exit code: 0");
    expect(await agent.call("bash", { command: "touch /mnt/notes/x" })).toContain("Read-only file system");
  } finally {
    await agent.end();
  }
  expect(readFileSync(join(project, "src/made.txt"), "utf8")).toBe("by the agent\n");
  expect(readFileSync(join(project, "src/main.txt"), "utf8")).toBe("theirs\nmore\n");
  const made = ["src/made.txt", "src/main.txt", "build", "build/one"].map((name) => statSync(join(project, name)).uid);
  expect(made).toEqual([owner, owner, owner, owner]);
  expect(readdirSync(notes)).toEqual(["read.txt"]);
}

describe("an agent's write in the person's project", () => {
  it.skipIf(!isRoot)(
    "appears there with the person's ownership, under root's fleet",
    async () => {
      const directory = person(61_500);
      await works((args) => [process.execPath, ...FLAGS, MAIN, ...args], directory, 61_500);
    },
    120_000,
  );

  it.skipIf(!isRoot)(
    "appears there with the person's ownership, under an ordinary user's fleet",
    async () => {
      const directory = person(ORDINARY.uid);
      const start = (args: readonly string[]) =>
        asOrdinaryUser(ordinaryNode(), ...FLAGS, seenByOrdinaryUser(MAIN), ...args);
      await works(start, directory, ORDINARY.uid);
    },
    120_000,
  );

  it("is not promised for what is no directory, nor through a gateway", async () => {
    const directory = person(process.getuid?.() ?? 0);
    const run = async (args: readonly string[]) => {
      const agent = new Agent([process.execPath, ...FLAGS, MAIN, "mcp", ...args], join(directory, "home"));
      await agent.begin().catch(() => {});
      await agent.end();
      return agent.said;
    };
    expect(await run(["--workspace", join(directory, "nowhere")])).toContain("it does not exist");
    expect(await run(["--mount", join(directory, "notes/read.txt")])).toContain("it is no directory");
    expect(await run(["--mount", directory, "--url", "http://127.0.0.1:9"])).toContain(
      "a gateway does not mount directories",
    );
  }, 60_000);
});
