/** The shell of the `memory` backend: like a POSIX shell where both have a feature, and its own limits. */

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ExecResult, KEPT_HOME } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import { ExecTable } from "../../src/backends/memory/exec/exec-table.ts";
import { Machine } from "../../src/backends/memory/exec/machine.ts";
import { makeDirectory, makePrivateRoot, makeWorkspace } from "../../src/backends/memory/files/node.ts";
import { FileTree } from "../../src/backends/memory/files/tree.ts";
import { runInOwnShell } from "../../src/backends/memory/shell/run.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { CORPUS, UNSUPPORTED } from "./memory-shell-corpus.ts";

const world = systemWorld();
const DIFFERENTIAL = process.platform === "linux" && existsSync("/bin/sh");

describe.each(Object.entries(CORPUS))("the shell: %s", (_, rows) => {
  it.each(rows.map(([script, stdout, exitCode = 0]) => ({ script, stdout, exitCode })))(
    "$script",
    async ({ script, stdout, exitCode }) => {
      const result = await run(script);
      expect([result.stdout, result.exitCode], result.stderr).toEqual([stdout, exitCode]);
    },
  );
});

describe.runIf(DIFFERENTIAL)("the machine's own shell agrees", () => {
  it.each(Object.entries(CORPUS))("%s", (_, rows) => {
    const wrong = rows.filter(([script, stdout, exitCode = 0]) => {
      const directory = mkdtempSync(join(tmpdir(), "sandlot-shell-"));
      try {
        const result = spawnSync("/bin/sh", ["-c", script], {
          cwd: directory,
          encoding: "utf8",
          env: { PATH: process.env.PATH, LC_ALL: "C" },
        });
        return result.stdout !== stdout || result.status !== exitCode;
      } finally {
        rmSync(directory, { recursive: true, force: true });
      }
    });
    expect(wrong.map(([script]) => script)).toEqual([]);
  });
});

describe("unsupported parts of the shell", () => {
  const rows = UNSUPPORTED.map(([script, named, exitCode, before = ""]) => ({ script, named, exitCode, before }));
  it.each(rows)("is named: $script", async ({ script, named, exitCode, before }) => {
    const result = await run(script);
    expect(result.stderr).toContain(`sandlot memory shell: not supported: ${named}`);
    expect([result.stdout, result.exitCode]).toEqual([before, exitCode]);
  });
});

describe("the shell's own limits", () => {
  it.each([
    ["an unterminated quote", "echo 'a", /Unterminated/],
    ["an operator without a command", "echo a | | cat", /unexpected/],
    ["a loop without an end", "while true; do echo a", /unexpected/],
    ["a stray closer", "fi", /unexpected/],
    ["nesting without end", "(".repeat(20_000), /nested too deeply|unexpected/],
  ])("%s is a syntax error: status 2, nothing run", async (_, script, message) => {
    const { exitCode, stdout, stderr } = await run(script);
    expect([exitCode, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(message);
  });

  it("a script that runs itself without end fails", async () => {
    expect(await run("echo 'sh s' > s; sh s; echo $?")).toMatchObject({ exitCode: 0, stdout: "2\n" });
  });

  it("a division by zero ends the script", async () => {
    expect(await run("echo $((1 / 0)); echo no")).toMatchObject({ exitCode: 2, stdout: "" });
  });

  it("processes are limited, so a fork bomb fails instead of spreading", async () => {
    const { stderr, status } = await run("i=0; while [ $i -lt 600 ]; do i=$((i+1)); sleep 30 & done; echo $i", {
      timeoutMs: 5_000,
    });
    expect([status, /internal error/.test(stderr)]).toEqual(["completed", false]);
    expect(stderr).toMatch(/Resource temporarily unavailable/);
  });

  it("bytes pass through pipes and files unchanged", async () => {
    const { stdout } = await run(
      "printf '\\377\\000\\200' > f; cat f | tee g | head -c 3 | base64; wc -c < g; base64 g",
    );
    expect(stdout).toBe("/wCA\n3\n/wCA\n");
  });

  it("fixed directories cannot be removed or replaced", async () => {
    const { exitCode } = await run("rm -rf /mnt/user-data/workspace; echo x > /mnt/file; rm -rf /mnt");
    expect(exitCode).toBe(1);
    expect((await run("ls /mnt/user-data")).stdout).toBe("outputs\nuploads\nworkspace\n");
  });

  it("an endless writer is held by its timeout and its file by the limit of files", async () => {
    const { status } = await run("yes > /tmp/f", { timeoutMs: 100 });
    expect(status).toBe("timed_out");
  });
});

function run(script: string, options: { timeoutMs?: number } = {}): Promise<ExecResult> {
  const mnt = makeDirectory(0, { pinned: true, sealed: true });
  mnt.entries.set("user-data", makeWorkspace(0));
  const tree = new FileTree(makePrivateRoot(0, mnt, KEPT_HOME), () => world.wallMs());
  const machine = new Machine({ tree, world, environment: {} });
  const table = new ExecTable(machine, runInOwnShell);
  return table.exec({ execId: "test", command: script, repeatable: false, timeoutMs: options.timeoutMs ?? 10_000 });
}
