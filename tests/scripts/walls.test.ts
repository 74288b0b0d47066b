import { expect, it } from "vitest";
import { wallProblems } from "../../scripts/walls.ts";

const file = (path: string, text: string) => ({ path, text });
const fleet = (path: string, text: string) => file(`packages/fleet/src/${path}`, text);

it("names an import from one backend into another", () => {
  const text = 'import { socketPath } from "../local/layout.ts";\n';
  expect(wallProblems([fleet("backends/docker/maker.ts", text)])).toEqual([
    "packages/fleet/src/backends/docker/maker.ts imports backends/local/layout.ts: backends/docker/ may not import backends/local/",
  ]);
});

it.each([
  ["a type", 'import type { Layout } from "../host/layout.ts";'],
  ["an import over several lines", 'import {\n  type Layout,\n  makeLayout,\n} from "../host/layout.ts";'],
  ["what is passed on", 'export { makeLayout } from "../host/layout.ts";'],
  ["what is imported when used", 'const { makeLayout } = await import("../host/layout.ts");'],
  ["what is imported for its effect", 'import "../host/layout.ts";'],
])("counts %s", (_, text) => {
  expect(wallProblems([fleet("sandboxd/wire.ts", text)])).toEqual([
    "packages/fleet/src/sandboxd/wire.ts imports host/layout.ts: sandboxd/ may not import host/",
  ]);
});

it("lets the rooms of a hall import each other, but not in a circle", () => {
  const limits = fleet("host/limits/budget.ts", 'import { measure } from "../workspaces/measure.ts";');
  expect(wallProblems([limits])).toEqual([]);
  const workspaces = fleet("host/workspaces/measure.ts", 'import type { Budget } from "../limits/budget.ts";');
  expect(wallProblems([limits, workspaces])).toEqual([
    expect.stringContaining("a cycle of rooms: host/limits -> host/workspaces -> host/limits"),
  ]);
});

it("refuses a room that has no row, so that a new folder is a decision", () => {
  const problems = wallProblems([fleet("attic/box.ts", 'import { World } from "../world/world.ts";')]);
  expect(problems).toEqual([expect.stringContaining("attic/ has no row")]);
});

it("keeps the daemon and the client apart from the fleet", () => {
  const problems = wallProblems([
    file("packages/sandboxd/src/main.ts", 'import { openFleet } from "sandlot";'),
    file("packages/client/src/lease.ts", 'import type { Lease } from "@sandlot/sandboxd";'),
    file(
      "packages/client/src/tools.ts",
      'export const NAME = "sandlot";\nimport { SandlotError } from "@sandlot/contract";',
    ),
  ]);
  expect(problems).toEqual([
    "packages/sandboxd/src/main.ts imports sandlot: the package sandboxd may not import fleet",
    "packages/client/src/lease.ts imports @sandlot/sandboxd: the package client may not import sandboxd",
  ]);
});
