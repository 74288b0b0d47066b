/** The commands on checkpoints, on real sandboxes: list, export, verify, restore, remove; and threads that begin with one. */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { runHere } from "./run-here.ts";

const hasBubblewrap = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "bwrap")));
const home = mkdtempSync(join(tmpdir(), "slc-"));
const environment = { SANDLOT_HOME: home };
const threads = ["app", "from-checkpoint", "from-archive", "from-directory"];

async function ran(...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await runHere(args, environment);
  expect(`${args.join(" ")}: ${code}${code === 0 ? "" : ` ${stderr}`}`).toBe(`${args.join(" ")}: 0`);
  return stdout;
}

async function json<T>(...args: readonly string[]): Promise<T> {
  return JSON.parse(await ran(...args, "--json")) as T;
}

interface Listed {
  readonly checkpoints: readonly { readonly id: string; readonly label: string | null; readonly isHead: boolean }[];
}

describe.skipIf(!hasBubblewrap)("checkpoint commands (skipped where bubblewrap is not installed)", () => {
  afterAll(async () => {
    for (const thread of threads) await runHere(["rm", "-t", thread, "--force", "--purge"], environment);
    rmSync(home, { recursive: true, force: true });
  });
  const archive = join(home, "before.tar");

  test("take and list: the newest first, with its label", async () => {
    await ran("exec", "-t", "app", "--", "echo one > a; echo one > b; ln -s a link");
    const id = (await ran("checkpoint", "take", "-t", "app", "--label", "works", "--verify")).trim();
    await ran("exec", "-t", "app", "--", "echo two > a; echo two > b");
    await ran("checkpoint", "take", "-t", "app");
    const { checkpoints } = await json<Listed>("checkpoint", "ls", "-t", "app");
    const [newest] = checkpoints;
    expect(newest).toMatchObject({ isHead: true, label: null });
    expect(checkpoints.find(({ label }) => label === "works")?.id).toBe(id);
    expect(await ran("checkpoint", "ls", "-t", "app")).toMatch(/^\* [0-9a-f]{12} .* (automatic|requested)/m);
  });

  test("export writes a tar archive to a new file, and never over one", async () => {
    await ran("checkpoint", "export", "-t", "app", "works", "-o", archive);
    expect(execFileSync("tar", ["-xOf", archive, "workspace/a"], { encoding: "utf8" })).toBe("one\n");
    const again = await runHere(["checkpoint", "export", "-t", "app", "works", "-o", archive], environment);
    expect(again.code).toBe(1);
    expect(execFileSync("tar", ["-xOf", archive, "workspace/a"], { encoding: "utf8" })).toBe("one\n");
  });

  test("restore of a path brings back that path only", async () => {
    await ran("restore", "-t", "app", "works", "workspace/a");
    expect(await ran("exec", "-t", "app", "--", "cat a b")).toBe("one\ntwo\n");
  });

  test("a thread begins with a checkpoint, an archive or a directory, and only a new one", async () => {
    const directory = join(home, "project");
    mkdirSync(directory);
    writeFileSync(join(directory, "a"), "of the host\n");
    const sources = [
      ["from-checkpoint", "app@works", "one\n"],
      ["from-archive", archive, "one\n"],
      ["from-directory", directory, "of the host\n"],
    ] as const;
    for (const [thread, source, expected] of sources) {
      expect(await ran("exec", "-t", thread, "--from", source, "--", "cat a")).toBe(expected);
      const again = await runHere(["exec", "-t", thread, "--from", source, "--", "true"], environment);
      expect(again.stderr).toContain("thread_exists");
    }
    const wrong = await runHere(["exec", "-t", "nothing", "--from", "./nowhere", "--", "true"], environment);
    expect([wrong.code, wrong.stderr]).toEqual([125, expect.stringContaining("neither an archive nor a directory")]);
  });

  test("rm removes one, and says so when there is none", async () => {
    await ran("checkpoint", "rm", "-t", "app", "works");
    const again = await runHere(["checkpoint", "rm", "-t", "app", "works"], environment);
    expect([again.code, again.stderr]).toEqual([1, expect.stringContaining("checkpoint_not_found")]);
    const { checkpoints } = await json<Listed>("checkpoint", "ls", "-t", "app");
    expect(checkpoints.map(({ label }) => label)).not.toContain("works");
  });

  test("verify reads all of them, and ends with 1 when one is damaged", async () => {
    expect(await json("checkpoint", "verify", "-t", "app")).toMatchObject({ damaged: [] });
    const packs = readdirSync(home, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".pack"));
    for (const pack of packs) {
      const path = join(home, pack);
      writeFileSync(path, readFileSync(path, "latin1").replaceAll("one\n", "ONE\n"), "latin1");
    }
    const { code, stdout } = await runHere(["checkpoint", "verify", "-t", "app"], environment);
    expect([code, stdout]).toEqual([1, expect.stringMatching(/^[0-9a-f]{12} workspace\/a$/m)]);
  });
});
