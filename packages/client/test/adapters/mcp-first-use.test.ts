/**
 * MCP for a new user, also from the lines in the README: a client starts `sandlot mcp` as its child and has a small
 * program written, run and fixed. The dialogue is in docs/guides/mcp.md; with UPDATE_DOCS=1 this test writes it there.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type PackedProject, packedProject, whyNotPacked } from "../packed/packed-project.ts";
import { connectMcp, GENERATIONS, type McpConnection, type McpGeneration, MODERN_VERSION } from "./mcp-clients.ts";

const GUIDE = join(import.meta.dirname, "../../../../docs/guides/mcp.md");
const [BEGIN, END] = ["<!-- transcript: written by mcp-first-use.test.ts -->", "<!-- end of transcript -->"];

const ROOT = join(import.meta.dirname, "../../../..");
/** The Node of this repository, also where the tests run on an older one: sources need its syntax. */
const PINNED_NODE = join(ROOT, "node_modules/.bin/node");
const NODE = existsSync(PINNED_NODE) ? PINNED_NODE : process.execPath;

async function withServer(generation: McpGeneration, use: (client: McpConnection, child: Server) => Promise<void>) {
  const home = mkdtempSync(join(tmpdir(), "sandlot-mcp-"));
  const config = join(home, "sandlot.json");
  writeFileSync(config, JSON.stringify({ backend: "memory", store: { type: "memory" } }));
  const args = ["--conditions=sandlot-source", join(ROOT, "packages/fleet/src/cli/main.ts"), "mcp", "--config", config];
  const { SANDLOT_URL: _, ...environment } = process.env;
  const child = spawn(NODE, args, { stdio: "pipe", env: { ...environment, SANDLOT_HOME: home } });
  try {
    await use(await connectMcp(generation, { stdin: child.stdin, stdout: child.stdout }), child);
    expect(await ended(child)).toBe(0);
  } finally {
    child.kill("SIGKILL");
    rmSync(home, { recursive: true, force: true });
  }
}

type Server = ReturnType<typeof spawn> & { readonly stdin: Writable; readonly stdout: Readable };

function ended(child: ChildProcess): Promise<number | null> {
  return new Promise((resolve) => (child.exitCode === null ? child.once("exit", resolve) : resolve(child.exitCode)));
}

/** It takes squares for primes. */
const PROGRAM = `# Prints the primes up to $1.
n=2
while [ $n -le $1 ]; do
  d=2; prime=1
  while [ $((d * d)) -lt $n ]; do
    if [ $((n % d)) -eq 0 ]; then prime=0; fi
    d=$((d + 1))
  done
  if [ $prime -eq 1 ]; then echo $n; fi
  n=$((n + 1))
done
`;

const STEPS: readonly (readonly [string, Record<string, unknown>])[] = [
  ["write_file", { path: "primes.sh", content: PROGRAM }],
  ["bash", { command: "sh primes.sh 20" }],
  ["read_file", { path: "primes.sh", start_line: 4, end_line: 7 }],
  [
    "str_replace",
    { path: "primes.sh", old_str: "while [ $((d * d)) -lt $n ]", new_str: "while [ $((d * d)) -le $n ]" },
  ],
  ["bash", { command: "sh primes.sh 20 | tee /mnt/user-data/outputs/primes.txt" }],
  ["present_files", { filepaths: ["/mnt/user-data/outputs/primes.txt"] }],
];

/** Runs all steps with a client; returns the dialogue, as in the guide. */
async function transcriptOf(client: McpConnection): Promise<string> {
  const said: string[] = [];
  for (const [tool, input] of STEPS) {
    const { text, isError } = await client.call(tool, input);
    expect(isError, text).toBe(false);
    said.push(`> ${tool} ${JSON.stringify(input, null, 1).replace(/\n */g, " ")}`, text, "");
  }
  expect(said[4]).toContain("4\n5\n7\n9\n11");
  expect(said[13]).toBe("2\n3\n5\n7\n11\n13\n17\n19\n[exit code: 0]");
  return `${BEGIN}\n\n\`\`\`text\n${said.join("\n").trimEnd()}\n\`\`\`\n\n${END}`;
}

function checkGuide(transcript: string): void {
  const guide = readFileSync(GUIDE, "utf8");
  const [from, to] = [guide.indexOf(BEGIN), guide.indexOf(END) + END.length];
  if (process.env.UPDATE_DOCS === "1") writeFileSync(GUIDE, guide.slice(0, from) + transcript + guide.slice(to));
  else expect(guide.slice(from, to), "run this test with UPDATE_DOCS=1").toBe(transcript);
}

describe.each(GENERATIONS)("a first use of MCP %s", (generation) => {
  test("write, run and mend a program", () =>
    withServer(generation, async (client) => {
      checkGuide(await transcriptOf(client));
      await client[Symbol.asyncDispose]();
    }));

  test("a client that is killed leaves no server behind", () =>
    withServer(generation, async (client, child) => {
      client.call("bash", { command: "sleep 60" }).catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, 300));
      child.stdin.destroy();
      child.stdout.destroy();
    }));
});

describe("the two lines of the README", () => {
  /** The arguments after the `--` of the lines that add us to a coding agent. */
  const commands = [...readFileSync(join(ROOT, "README.md"), "utf8").matchAll(/^\w+ mcp add sandlot -- (.+)$/gm)].map(
    ([, command = ""]) => command,
  );
  const reason = whyNotPacked();
  let project: PackedProject | null = null;
  beforeAll(() => {
    if (reason === null) project = packedProject();
  }, 120_000);
  afterAll(() => project?.remove());

  test("are two, and the guide has them too", () => {
    expect(commands).toEqual(["sandlot mcp", "sandlot mcp"]);
    for (const command of commands) expect(readFileSync(GUIDE, "utf8")).toContain(`mcp add sandlot -- ${command}`);
  });

  test.for(GENERATIONS)(
    "work in an empty project with the published packages, MCP %s",
    { timeout: 120_000 },
    async (generation, context) => {
      if (project === null) return context.skip(reason ?? "");
      const [command = "", ...args] = (commands[0] ?? "").split(" ");
      const environment = {
        ...project.environment,
        ...(hasBubblewrap ? {} : { SANDLOT_CONFIG: memoryConfig(project) }),
      };
      const child = spawn(command, args, { cwd: project.directory, env: environment, stdio: ["pipe", "pipe", "pipe"] });
      const told: string[] = [];
      child.stderr.setEncoding("utf8").on("data", (piece: string) => told.push(piece));
      try {
        const client = await connectMcp(generation, { stdin: child.stdin, stdout: child.stdout });
        if (generation === "2026") expect(client.protocolVersion).toBe(MODERN_VERSION);
        else expect(client.protocolVersion).toMatch(/^2025-/);
        // Real sandboxes give the same output as the guide.
        checkGuide(await transcriptOf(client));
        await client[Symbol.asyncDispose]();
        expect(await ended(child), told.join("")).toBe(0);
        expect(told.join("")).toMatch(/sandlot: thread mcp-[0-9a-f]{16}/);
      } finally {
        child.kill("SIGKILL");
      }
      // Its sandbox is kept for the thread; the next command of the same home ends it.
      const left = project.run(ENDING);
      expect(left.status, left.stderr).toBe(0);
      expect(JSON.parse(left.stdout)).toEqual([["parked", 0]]);
    },
  );
});

const hasBubblewrap = spawnSync("bwrap", ["--version"]).status === 0;

function memoryConfig({ directory }: PackedProject): string {
  const file = join(directory, "sandlot.json");
  writeFileSync(file, JSON.stringify({ backend: "memory" }));
  return file;
}

/** The entries of the project's home, which is then empty. */
const ENDING = `
import { openFleet } from "sandlot";
const fleet = await openFleet();
const list = await fleet.list();
for (const { thread } of list) await fleet.destroy({ thread }, { purge: true, force: true });
await fleet.close({ destroy: true });
console.log(JSON.stringify(list.map(({ state, holders }) => [state, holders.length])));
`;
