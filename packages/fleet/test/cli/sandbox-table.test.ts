/** The table of `sandlot ps`. */

import type { SandboxSummary } from "@sandlot/contract";
import { expect, test } from "vitest";
import { sandboxTable } from "../../src/cli/fleet-commands.ts";

const sandbox: SandboxSummary = {
  ...{ sandboxId: "0123456789abcdef", user: "ada", thread: "t1", state: "leased", generation: 1, blueprint: "default" },
  ...{ backend: "docker", engine: "docker-north", holders: ["i-1"], createdAt: 0, parkedAt: null },
};

test("names the engine of each sandbox where there are several", () => {
  const { engine: _, ...old } = sandbox;
  const { heads, rows } = sandboxTable([sandbox, { ...sandbox, engine: "docker-south" }, old], 5_000);
  expect(heads.at(-1)).toBe("ENGINE");
  expect(rows.map((row) => row.at(-1))).toEqual(["docker-north", "docker-south", "-"]);
  expect(rows.map((row) => row.length)).toEqual([heads.length, heads.length, heads.length]);
});

test("has no column for a fleet with one engine", () => {
  const { heads, rows } = sandboxTable([sandbox, sandbox], 5_000);
  expect(heads.at(-1)).toBe("HELD BY");
  expect(rows).toEqual([rows[0], ["0123456789ab", "ada", "t1", "leased", "default", "docker", "5s", "1"]]);
});
