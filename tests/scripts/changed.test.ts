/** Which steps and tests `npm test -- --changed` runs: for made-up changes of a made-up checkout, and that it knows this one. */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { planChange, type Sources, STEP_FOLDERS } from "../../scripts/changed.ts";
import { changesSince, checkoutSources } from "../../scripts/changed-files.ts";

const FILES: Readonly<Record<string, string>> = {
  "package.json": "{}",
  "package-lock.json": "{}",
  "vitest.config.ts": "",
  "README.md": "# Read",
  "docs/ARCHITECTURE.md": "",
  "scripts/test.mjs": "",
  ".ci/run": "",
  "bench/main.ts": "",
  "deploy/unit.service": "",
  "packages/contract/src/index.ts": "export const x = 1;",
  "packages/contract/test/x.test.ts": 'import { x } from "@sandlot/contract";',
  "packages/client/src/index.ts": "",
  "packages/sandboxd/src/main.ts": "",
  "packages/fleet/package.json": "{}",
  "packages/fleet/src/provider.ts": 'import { wait } from "./waiting.ts";',
  "packages/fleet/src/waiting.ts": "",
  "packages/fleet/src/cli/main.ts": 'const { run } = await import("../provider.ts");',
  "packages/fleet/src/egress.ts": 'programFile("host/egress/egress-main");',
  "packages/fleet/src/host/egress/egress-main.ts": 'import "../../backend/network/policy.ts";',
  "packages/fleet/src/backend/network/policy.ts": "",
  "packages/fleet/test/provider.test.ts": 'import { provider } from "../src/provider.ts";',
  "packages/fleet/test/cli/cli.test.ts": 'import { runCli } from "./run-cli.ts";',
  "packages/fleet/test/cli/run-cli.ts": 'import { spawn } from "node:child_process";',
  "packages/fleet/test/cli/page.html": "",
  "packages/fleet/test/readme.test.ts": 'readFileSync("README.md");',
  "packages/fleet/test/engines/browser.test.ts": 'import { spawn } from "node:child_process";',
  "tests/simulation/main.ts": 'import "../../packages/fleet/src/provider.ts";',
  "tests/simulation/checks/check.ts": "",
  "tests/crash/main.ts": 'import "../simulation/checks/check.ts";',
  "tests/chaos/main.ts": 'import { openFleet } from "sandlot";',
};
const sources: Sources = { paths: Object.keys(FILES), read: (path) => FILES[path] ?? "" };
const plan = (...changed: string[]) => planChange(changed, sources);
const CLI_TEST = "packages/fleet/test/cli/cli.test.ts";

it.each([
  ["package.json"],
  ["package-lock.json"],
  ["vitest.config.ts"],
  ["packages/fleet/package.json"],
  ["scripts/test.mjs"],
  [".ci/run"],
  ["deploy/unit.service"],
  ["packages/sandboxd/src/main.ts"],
  ["packages/fleet/test/cli/page.html"],
  ["a/new/kind/of.file"],
])("runs everything for %s, also beside what could be judged alone", (path) => {
  expect(plan(path)).toEqual({ kind: "everything", because: expect.stringContaining(path) });
  expect(plan("README.md", path).kind).toBe("everything");
});

it("runs everything for a file that is gone, and for part of a program that is started by its path", () => {
  expect(plan("packages/fleet/src/gone.ts")).toMatchObject({ because: expect.stringContaining("is gone") });
  for (const path of ["packages/fleet/src/backend/network/policy.ts", "packages/fleet/src/host/egress/egress-main.ts"])
    expect(plan(path)).toMatchObject({ because: expect.stringContaining("is part of a program") });
});

it("runs what imports a source, every test that starts processes, and the steps that reach it", () => {
  const some = { kind: "some", engines: [] };
  const [source, waiting] = ["packages/fleet/src/provider.ts", "packages/fleet/src/waiting.ts"];
  expect(plan(source)).toEqual({ ...some, steps: ["sim", "chaos-local"], related: [source, CLI_TEST].sort() });
  expect(plan(waiting)).toEqual({ ...some, steps: ["sim", "chaos-local"], related: [waiting, CLI_TEST].sort() });
  const client = "packages/client/src/index.ts";
  expect(plan(client)).toEqual({ ...some, steps: [], related: [client, CLI_TEST] });
});

it("runs a test that changed alone, and what it may start beside test code", () => {
  const test = "packages/fleet/test/provider.test.ts";
  expect(plan(test)).toEqual({ kind: "some", steps: [], related: [test], engines: [] });
  const support = "packages/fleet/test/cli/run-cli.ts";
  expect(plan(support)).toMatchObject({ related: [CLI_TEST, support] });
  expect(plan("tests/simulation/checks/check.ts")).toMatchObject({ steps: ["sim", "crash"] });
  expect(plan("tests/chaos/main.ts")).toMatchObject({ steps: ["chaos-local"] });
});

it("runs tests that read documents for a document, and the static checks alone for a benchmark", () => {
  const related = ["packages/fleet/test/readme.test.ts"];
  expect(plan("docs/ARCHITECTURE.md")).toEqual({ kind: "some", steps: [], related, engines: [] });
  expect(plan("docs/removed.md")).toMatchObject({ related });
  expect(plan("bench/main.ts")).toEqual({ kind: "some", steps: [], related: [], engines: [] });
});

it("names what only the other suite judges", () => {
  const path = "packages/fleet/test/engines/browser.test.ts";
  expect(plan(path)).toEqual({ kind: "some", steps: [], related: [], engines: [path] });
});

it("knows the files of this checkout", () => {
  const here = checkoutSources();
  for (const folder of Object.values(STEP_FOLDERS)) expect(here.paths).toContain(`${folder}main.ts`);
  expect(planChange(["packages/fleet/src/provider.ts"], here)).toMatchObject({
    steps: Object.keys(STEP_FOLDERS),
    related: expect.arrayContaining([
      "packages/fleet/src/provider.ts",
      "packages/fleet/test/cli/sandbox-commands.test.ts",
    ]),
  });
  const readsReadme = expect.arrayContaining(["packages/fleet/test/docs/readme.test.ts"]);
  expect(planChange(["README.md"], here)).toMatchObject({ kind: "some", steps: [], related: readsReadme });
  const programs = here.paths.filter((path) => path.endsWith("/egress-main.ts"));
  expect(programs).toHaveLength(1);
  expect(planChange(programs, here).kind).toBe("everything");
});

it("lists what git has changed since a commit, also what is new, moved and not committed", () => {
  const root = mkdtempSync(join(tmpdir(), "sl-changed-"));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  const git = (...args: string[]) =>
    execFileSync("git", ["-c", "user.name=t", "-c", "user.email=t@t", ...args], { cwd: root });
  const write = (path: string, text: string) => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  expect(changesSince(undefined, root)).toHaveProperty("problem");
  git("init", "--quiet", "--initial-branch=main");
  write("same.ts", "");
  write("moved.ts", "some text that stays the same");
  git("add", ".");
  git("commit", "--quiet", "-m", "one");
  expect(changesSince(undefined, root)).toMatchObject({ files: [] });
  git("checkout", "--quiet", "-b", "branch");
  git("mv", "moved.ts", "there.ts");
  write("committed.ts", "");
  git("add", ".");
  git("commit", "--quiet", "-m", "two");
  write("not yet/known.ts", "");
  write("same.ts", "changed");
  const files = ["committed.ts", "moved.ts", "not yet/known.ts", "same.ts", "there.ts"];
  expect(changesSince(undefined, root)).toMatchObject({ files });
  expect(changesSince("HEAD", root)).toMatchObject({ files: ["not yet/known.ts", "same.ts"] });
  expect(changesSince("no-such", root)).toEqual({ problem: "git knows no commit no-such" });
});
