/**
 * A fleet with running sandboxes moves from SQLite to another store: real sandboxes, real processes, the command line.
 * The tests of each store call it with their section of the configuration.
 */

import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import { runHere } from "./run-here.ts";

export const hasBubblewrap = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "bwrap")));

const THREADS = ["t1", "t2"];
/** A process inside goes on counting. A reader never sees half a number. */
const COUNTER = "i=0; while true; do i=$((i+1)); echo $i > next; mv next count; sleep 0.1; done";

interface Listed {
  readonly sandboxId: string;
  readonly thread: string;
  readonly generation: number;
  readonly state: string;
}

/** `sectionIn` gives the section `store` of the new configuration, for this home. */
export async function moveFleet(sectionIn: (home: string) => Readonly<Record<string, unknown>>): Promise<void> {
  const home = mkdtempSync(join(tmpdir(), "slm-"));
  const [file, newer] = [join(home, "out.jsonl"), join(home, "new.yaml")];
  const cli = (...args: string[]) => runHere(args, { SANDLOT_HOME: home });
  const listed = async (...args: string[]): Promise<readonly Listed[]> => {
    const { sandboxes } = JSON.parse((await cli("ps", "--json", ...args)).stdout) as { sandboxes: readonly Listed[] };
    return sandboxes
      .map(({ sandboxId, thread, generation, state }) => ({ sandboxId, thread, generation, state }))
      .sort((one, other) => (one.thread < other.thread ? -1 : 1));
  };
  const inside = async (thread: string, command: string, ...args: string[]): Promise<readonly string[]> => {
    const { code, stdout, stderr } = await cli("exec", ...args, "-t", thread, "--", command);
    expect([code, stderr]).toEqual([0, ""]);
    return stdout.trimEnd().split("\n");
  };
  try {
    for (const thread of THREADS)
      await inside(thread, `echo of-${thread} > note; (${COUNTER}) >/dev/null 2>&1 & echo $!`);
    const before = await listed();
    expect(before.map(({ thread }) => thread)).toEqual(THREADS);
    const seen = await Promise.all(THREADS.map((one) => inside(one, "pgrep -f 'while true' | head -1; cat count")));

    expect(await cli("store", "export", file)).toMatchObject({ code: 0 });
    // YAML has JSON.
    writeFileSync(newer, JSON.stringify({ store: sectionIn(home) }));
    expect(await cli("store", "import", file, "--to", newer)).toMatchObject({ code: 0 });
    // The former store is closed, so no process can use both by mistake.
    expect((await cli("exec", "-t", "t1", "--", "true")).stderr).toContain("store_moved");

    expect(await listed("-c", newer)).toEqual(before);
    for (const [index, thread] of THREADS.entries()) {
      const [pid, count] = seen[index] ?? [];
      const [same, now, note] = await inside(thread, "pgrep -f 'while true' | head -1; cat count note", "-c", newer);
      expect([same, note]).toEqual([pid, `of-${thread}`]);
      expect(Number(now)).toBeGreaterThan(Number(count));
    }
    expect(await listed("-c", newer)).toEqual(before);

    // A new sandbox gets a later generation than every one before.
    await inside("t3", "true", "-c", newer);
    const latest = Math.max(...before.map(({ generation }) => generation));
    const made = (await listed("-c", newer)).find(({ thread }) => thread === "t3");
    expect(made?.generation).toBeGreaterThan(latest);
    expect(JSON.parse((await cli("audit", "-c", newer, "--json")).stdout)).toMatchObject({ consistent: true });
  } finally {
    const isMoved = existsSync(newer);
    for (const thread of [...THREADS, "t3"])
      await cli("rm", ...(isMoved ? ["-c", newer] : []), "-t", thread, "--force", "--purge");
    rmSync(home, { recursive: true, force: true });
  }
}
