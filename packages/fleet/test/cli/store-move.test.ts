/** A fleet with running sandboxes moves to another store: real sandboxes, real processes, the command line. */

import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { runCli } from "./run-cli.ts";

const hasBubblewrap = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "bwrap")));
const home = mkdtempSync(join(tmpdir(), "slm-"));
const newer = join(home, "new.yaml");
const cli = (...args: string[]) => runCli(args, { SANDLOT_HOME: home });
const THREADS = ["t1", "t2", "t3"];

interface Listed {
  readonly sandboxes: readonly {
    readonly sandboxId: string;
    readonly thread: string;
    readonly generation: number;
    readonly state: string;
  }[];
}

async function listed(...args: string[]): Promise<Listed["sandboxes"]> {
  const { stdout } = await cli("ps", "--json", ...args);
  const { sandboxes } = JSON.parse(stdout) as Listed;
  return sandboxes
    .map(({ sandboxId, thread, generation, state }) => ({ sandboxId, thread, generation, state }))
    .sort((one, other) => (one.thread < other.thread ? -1 : 1));
}

describe.skipIf(!hasBubblewrap)("a fleet moves to another store (skipped where bubblewrap is not installed)", () => {
  afterAll(async () => {
    for (const thread of [...THREADS, "t4"]) await cli("rm", "-c", newer, "-t", thread, "--force", "--purge");
    rmSync(home, { recursive: true, force: true });
  }, 60_000);

  it("finds every sandbox warm, with its files and processes, and ends nothing", async () => {
    // A counter that a process inside goes on writing to.
    const count = "i=0; while true; do i=$((i+1)); echo $i > count; sleep 0.1; done";
    for (const thread of THREADS) {
      const started = await cli(
        "exec",
        "-t",
        thread,
        "--",
        `echo of-${thread} > note; (${count}) >/dev/null 2>&1 & echo $!`,
      );
      expect(started).toMatchObject({ code: 0 });
    }
    const before = await listed();
    expect(before.map(({ thread }) => thread)).toEqual(THREADS);
    const pids = await Promise.all(
      THREADS.map((thread) => inside(thread, "pgrep -f 'while true' | head -1; cat count")),
    );

    expect(await cli("store", "export", join(home, "out.jsonl"))).toMatchObject({ code: 0 });
    writeFileSync(newer, `store: { type: sqlite, path: ${join(home, "new.db")} }\n`);
    expect(await cli("store", "import", join(home, "out.jsonl"), "--to", newer)).toMatchObject({ code: 0 });
    // The former store is closed, so no process can use both by mistake.
    expect((await cli("exec", "-t", "t1", "--", "true")).stderr).toContain("store_moved");

    expect(await listed("-c", newer)).toEqual(before);
    for (const [index, thread] of THREADS.entries()) {
      const [pid = "", seen = ""] = (pids[index] ?? "").split("\n");
      const [same, now, note] = (await inside(thread, "pgrep -f 'while true' | head -1; cat count note", newer)).split(
        "\n",
      );
      expect([same, note]).toEqual([pid, `of-${thread}`]);
      expect(Number(now)).toBeGreaterThan(Number(seen));
    }
    expect(await listed("-c", newer)).toEqual(before);

    // A new sandbox gets a later generation than every one before, and no event ended a sandbox.
    expect(await cli("exec", "-c", newer, "-t", "t4", "--", "true")).toMatchObject({ code: 0 });
    const after = await listed("-c", newer);
    const latest = Math.max(...before.map(({ generation }) => generation));
    expect(after.find(({ thread }) => thread === "t4")?.generation).toBeGreaterThan(latest);
    const audit = JSON.parse((await cli("audit", "-c", newer, "--json")).stdout) as { consistent: boolean };
    expect(audit.consistent).toBe(true);
  }, 120_000);
});

async function inside(thread: string, command: string, config?: string): Promise<string> {
  const where = config === undefined ? [] : ["-c", config];
  const { code, stdout, stderr } = await cli("exec", ...where, "-t", thread, "--", command);
  expect([code, stderr]).toEqual([0, ""]);
  return stdout.trimEnd();
}
