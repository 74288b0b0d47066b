/** The example of the guide on checkpoints, as it is printed there, on real sandboxes. Ids differ from run to run. */

import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { runHere } from "../cli/run-here.ts";

const GUIDE = new URL("../../../../docs/guides/checkpoints.md", import.meta.url);
const hasBubblewrap = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "bwrap")));
const home = mkdtempSync(join(tmpdir(), "slg-"));
const environment = { SANDLOT_HOME: home };

interface Step {
  readonly line: string;
  readonly printed: string;
}

function steps(): readonly Step[] {
  const [, block = ""] = /```console\n([\s\S]*?)```/.exec(readFileSync(GUIDE, "utf8")) ?? [];
  const parts = block.split(/^\$ /m).filter((part) => part !== "");
  return parts.map((part) => {
    const end = part.indexOf("\n");
    return { line: part.slice(0, end), printed: part.slice(end + 1) };
  });
}

/** The words of a line with single quotes, as a shell has them. */
function wordsOf(line: string): readonly string[] {
  return [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? "");
}

/** The same id of the guide must be the same id of the run. */
function withoutIds(text: string, names: Map<string, string>): string {
  return text.replace(/\b[0-9a-f]{12}(?:[0-9a-f]{4})?\b/g, (id) => {
    const key = id.slice(0, 12);
    names.set(key, names.get(key) ?? `<id ${names.size + 1}>`);
    return names.get(key) ?? "";
  });
}

/** A busy machine may take longer to compare the files than an acquire waits. */
function compared(text: string): string {
  return text.replace(/The newest checkpoint is (<id \d+>)\./g, "The files are those of checkpoint $1.");
}

describe.skipIf(!hasBubblewrap)("the guide on checkpoints (skipped where bubblewrap is not installed)", () => {
  afterAll(async () => {
    for (const thread of ["app", "experiment"]) await runHere(["rm", "-t", thread, "--force", "--purge"], environment);
    rmSync(home, { recursive: true, force: true });
  });

  const [documented, printed] = [new Map<string, string>(), new Map<string, string>()];

  test("has an example", () => expect(steps().length).toBeGreaterThan(8));

  test.each(steps().map(({ line, printed: expected }) => [line, expected] as const))("%s", async (line, expected) => {
    const [program, ...args] = wordsOf(line);
    expect(program).toBe("sandlot");
    const { code, stdout, stderr } = await runHere(args, environment);
    const shown = compared(withoutIds(stdout + stderr, printed));
    expect({ code, shown }).toEqual({ code: 0, shown: withoutIds(expected, documented) });
  });
});
