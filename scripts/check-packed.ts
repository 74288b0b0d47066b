/**
 * Uses the packages as a stranger does: packs them, installs the tarballs into an empty project, type-checks and runs a
 * program against them, and starts the command line both on a Node that can run it and on one that cannot.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { BIN, childEnvironment, isAtLeast, NODE_FLOOR, ROOT } from "./runtime.mjs";

const PACKAGES = ["packages/contract", "packages/sandboxd", "packages/client", "packages/fleet"];

/** The first program of the documents, with every step spelled out. Compiled as TypeScript, run as it is. */
const PROGRAM = `
import { openFleet } from "sandlot";
import { SandlotError } from "@sandlot/contract";
import * as testing from "sandlot/testing";

const fleet = await openFleet({ backend: "memory" });
const lease = await fleet.acquire({ thread: "t1" });
const result = await lease.sandbox.exec("echo packed");
await lease.release();
await fleet.close({ destroy: true });
if (result.exitCode !== 0 || result.stdout !== "packed\\n") throw new Error("unexpected result: " + JSON.stringify(result));
if (typeof SandlotError !== "function" || Object.keys(testing).length === 0) throw new Error("exports are missing");
`;

const TSCONFIG = {
  // Declarations are checked too: a stranger may not skip them.
  compilerOptions: {
    module: "nodenext",
    target: "es2023",
    lib: ["es2023", "esnext.disposable"],
    strict: true,
    noEmit: true,
    types: ["node"],
    skipLibCheck: false,
    typeRoots: [join(ROOT, "node_modules", "@types")],
  },
  files: ["program.ts"],
};

const project = mkdtempSync(join(tmpdir(), "sandlot-packed-"));
try {
  checkInstall();
  checkCommandLine();
  checkProgram();
  console.log("packed: installs, type-checks, runs");
} finally {
  rmSync(project, { recursive: true, force: true });
}

function checkInstall(): void {
  const tarballs = PACKAGES.map((folder) => {
    const output = step(`pack ${folder}`, "npm", ["pack", "--json", "--pack-destination", project], {
      cwd: join(ROOT, folder),
    });
    const [packed] = JSON.parse(output) as [{ filename: string; files: { path: string }[] }];
    const names = packed.files.map(({ path }) => path);
    for (const needed of ["LICENSE", "README.md", "dist/index.js", "dist/index.d.ts", "src/index.ts"]) {
      if (!names.includes(needed)) throw new Error(`${packed.filename} lacks ${needed}`);
    }
    const stray = names.filter((name) => name.endsWith(".tsbuildinfo") || name.endsWith(".test.ts"));
    if (stray.length > 0) throw new Error(`${packed.filename} carries ${stray.join(", ")}`);
    return join(project, packed.filename);
  });
  writeFileSync(join(project, "package.json"), '{ "private": true, "type": "module" }\n');
  install(tarballs);
}

function checkCommandLine(): void {
  const launcher = join(project, "node_modules", "sandlot", "bin", "sandlot.mjs");
  expectIncludes(step("npx sandlot --help", "npx", ["--no-install", "sandlot", "--help"]), "Usage: sandlot");
  const old = machineNode();
  if (old === undefined) return;
  // The machine's Node is too old: without another one a single line says so, with another one it is used.
  const refusal = spawnSync(old, [launcher, "--help"], {
    cwd: project,
    encoding: "utf8",
    env: childEnvironment({ SANDLOT_NODE: "" }),
  });
  if (refusal.status !== 1 || refusal.stderr.trimEnd().split("\n").length !== 1) {
    throw new Error(`on an old Node the launcher ended with ${refusal.status} and said: ${refusal.stderr}`);
  }
  const environment = { SANDLOT_NODE: process.execPath };
  expectIncludes(step("sandlot --help from an old Node", old, [launcher, "--help"], { environment }), "Usage: sandlot");
}

function checkProgram(): void {
  const { devDependencies } = JSON.parse(readFileSync(join(ROOT, "packages/fleet/package.json"), "utf8")) as {
    devDependencies: Record<string, string>;
  };
  // The optional peer that the memory backend runs commands with.
  install([`just-bash@${devDependencies["just-bash"]}`]);
  writeFileSync(join(project, "program.ts"), PROGRAM);
  writeFileSync(join(project, "tsconfig.json"), JSON.stringify(TSCONFIG));
  step("type-check a program", process.execPath, [
    join(ROOT, "node_modules", "typescript", "bin", "tsc"),
    "-p",
    project,
  ]);
  const environment = { SANDLOT_HOME: join(project, "home") };
  step("run a program", process.execPath, ["program.ts"], { environment });
}

/** From npm's cache where it can, from the registry where it must. */
function install(specifiers: readonly string[]): void {
  const args = ["install", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
  step(`install ${specifiers.length} package(s)`, "npm", [...args, ...specifiers], { keepCertificates: true });
}

interface StepOptions {
  readonly cwd?: string;
  readonly environment?: Record<string, string>;
  readonly keepCertificates?: boolean;
}

function step(title: string, command: string, args: readonly string[], options: StepOptions = {}): string {
  const startedAt = Date.now();
  const certificates = process.env.NODE_EXTRA_CA_CERTS;
  const kept = options.keepCertificates && certificates !== undefined ? { NODE_EXTRA_CA_CERTS: certificates } : {};
  const env = childEnvironment({ ...kept, ...options.environment });
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    cwd: project,
    env,
    encoding: "utf8",
    ...(options.cwd && { cwd: options.cwd }),
    shell: process.platform === "win32" && command.startsWith("np"),
  });
  if (status !== 0) throw new Error(`${title} failed (${status ?? error?.message})\n${stdout ?? ""}${stderr ?? ""}`);
  console.log(`${title}: ok (${((Date.now() - startedAt) / 1000).toFixed(1)} s)`);
  return stdout;
}

/** The Node that a plain shell finds on this machine, if it is older than the packages need. */
function machineNode(): string | undefined {
  const folders = (process.env.PATH ?? "")
    .split(delimiter)
    .filter((folder) => folder !== "" && folder !== BIN && !folder.endsWith("node_modules/.bin"));
  const found = folders.map((folder) => join(folder, "node")).find((path) => existsSync(path));
  if (found === undefined || realpathSync(found) === realpathSync(process.execPath)) return undefined;
  const version = spawnSync(found, ["-p", "process.versions.node"], { encoding: "utf8" }).stdout.trim();
  return isAtLeast(version, NODE_FLOOR) ? undefined : found;
}

function expectIncludes(output: string, wanted: string): void {
  if (!output.includes(wanted)) throw new Error(`expected "${wanted}" in: ${output}`);
}
