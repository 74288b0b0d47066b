/**
 * Uses the packages as an outside user does: packs them, installs the tarballs into an empty project, counts what that
 * brought, type-checks and runs programs against them, including those of the README, and starts the command line both
 * on a Node that can run it and on one that cannot.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { floorNode } from "./floor-node.mjs";
import { pack } from "./pack.mjs";
import { BIN, childEnvironment, isAtLeast, NODE_FLOOR, ROOT, registryEnvironment } from "./runtime.mjs";

/** The maximum number of packages that the library may install: see README.md. */
const PACKAGES_MAX = 60;
const MEGABYTES_MAX = 50;

/** Every entry of the packages, compiled as TypeScript with the libraries' declarations checked, and run unchanged. */
const PROGRAM = `
import { openFleet } from "sandlot";
import { SandlotError } from "@sandlot/contract";
import * as testing from "sandlot/testing";
import { openFeishuChannel } from "sandlot/channels";
import { startGateway } from "sandlot/gateway";
import { MCP_TOOL_NAMES } from "sandlot/mcp";

const fleet = await openFleet({ backend: "memory" });
const lease = await fleet.acquire({ thread: "t1" });
const result = await lease.sandbox.exec("echo packed");
await lease.release();
await fleet.close({ destroy: true });
if (result.exitCode !== 0 || result.stdout !== "packed\\n") throw new Error("unexpected result: " + JSON.stringify(result));
const parts = [SandlotError, startGateway, Object.keys(testing)[0], MCP_TOOL_NAMES[0]];
if (parts.includes(undefined as never)) throw new Error("exports are missing");

const missing: unknown = await openFeishuChannel({
  source: fleet,
  appId: "cli_0123456789abcdef",
  appSecret: "s",
  onMessage: async () => {},
}).catch((error: unknown) => error);
if (!(missing instanceof SandlotError) || missing.code !== "dependency_missing") throw missing;
console.log(missing.message);
`;

const TSCONFIG = {
  // Declarations are checked too: a user may not skip them.
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
const environment = { SANDLOT_HOME: join(project, "home") };
try {
  checkInstall();
  checkSize();
  checkCommandLine();
  checkProgram();
  await checkReadme();
  await checkGateway();
  checkMissingPeers();
  console.log("packed: installs, type-checks, runs");
} finally {
  rmSync(project, { recursive: true, force: true });
}

function checkInstall(): void {
  const packed = pack(project);
  for (const { tarball, names } of packed) {
    const isFleet = names.includes("bin/sandlot.mjs");
    const entry = isFleet ? "dist/bundle/index.js" : "dist/index.js";
    for (const needed of ["LICENSE", "README.md", entry, "dist/index.d.ts"])
      if (!names.includes(needed)) throw new Error(`${tarball} lacks ${needed}`);
    const stray = names.filter((name) => /\.(?:tsbuildinfo|map|test\.ts)$|^src\//.test(name));
    if (stray.length > 0) throw new Error(`${tarball} carries ${stray.join(", ")}`);
  }
  writeFileSync(join(project, "package.json"), '{ "private": true, "type": "module" }\n');
  install(packed.map(({ tarball }) => tarball));
  const declared = readFileSync(join(project, "node_modules/@sandlot/contract/dist/results/exec.d.ts"), "utf8");
  if (!/\*\/\n +exitCode:/.test(declared)) throw new Error("the fields of published types have no comments");
}

/** Packages, megabytes and install scripts of npm's install. */
function checkSize(): void {
  const lock = JSON.parse(readFileSync(join(project, "node_modules", ".package-lock.json"), "utf8")) as {
    packages: Record<string, { hasInstallScript?: boolean }>;
  };
  const installed = Object.keys(lock.packages);
  const scripts = installed.filter((path) => lock.packages[path]?.hasInstallScript === true);
  const megabytes = bytesBelow(join(project, "node_modules")) / 1e6;
  console.log(
    `installed: ${installed.length} packages (at most ${PACKAGES_MAX}), ${megabytes.toFixed(1)} MB (at most ` +
      `${MEGABYTES_MAX}), ${scripts.length} install scripts`,
  );
  if (installed.length > PACKAGES_MAX) throw new Error(`too many packages: ${installed.join(", ")}`);
  if (megabytes > MEGABYTES_MAX) throw new Error(`too large: ${megabytes.toFixed(1)} MB`);
  if (scripts.length > 0) throw new Error(`packages with an install script: ${scripts.join(", ")}`);
}

function bytesBelow(folder: string): number {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
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
  const newer = { SANDLOT_NODE: process.execPath };
  const help = step("sandlot --help from an old Node", old, [launcher, "--help"], { environment: newer });
  expectIncludes(help, "Usage: sandlot");
}

function checkProgram(): void {
  writeFileSync(join(project, "program.ts"), PROGRAM);
  writeFileSync(join(project, "tsconfig.json"), JSON.stringify(TSCONFIG));
  step("type-check a program", process.execPath, [
    join(ROOT, "node_modules", "typescript", "bin", "tsc"),
    "-p",
    project,
  ]);
  const said = step("run a program", process.execPath, ["program.ts"], { environment });
  expectIncludes(said, "npm install @larksuiteoapi/node-sdk@1");
}

/** Its first program on this Node, and the form for older ones on the oldest supported; each also in real isolation. */
async function checkReadme(): Promise<void> {
  const readme = readFileSync(join(ROOT, "README.md"), "utf8");
  const programs = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, text = ""]) => text);
  const first = programs.find((text) => text.includes("await using fleet"));
  const older = programs.find((text) => text.includes("} finally {"));
  if (first === undefined || older === undefined)
    throw new Error("README.md lacks its first program, or the older form");
  const floor = await floorNode();
  const runs = [
    { title: "README's first program", program: first, node: process.execPath },
    ...(floor === undefined
      ? []
      : [{ title: `README's try/finally form on Node ${NODE_FLOOR.join(".")}`, program: older, node: floor }]),
  ];
  const [, expected = ""] = /It prints:\n\n```text\n([\s\S]*?)```/.exec(readme) ?? [];
  for (const { title, program, node } of runs) {
    for (const backend of ["memory", "local"]) {
      const text = backend === "memory" ? program : program.replace('{ backend: "memory" }', "");
      writeFileSync(join(project, "readme.ts"), text);
      const home = { SANDLOT_HOME: join(project, `home-${backend}-${node === floor ? "floor" : "pinned"}`) };
      const output = step(`${title}, ${backend}`, node, ["readme.ts"], { environment: home });
      // The fleet leaves its sandbox for a next process, and there is none.
      step("end its sandbox", "npx", ["--no-install", "sandlot", "rm", "--thread", "t1", "--purge"], {
        environment: { ...home, SANDLOT_BACKEND: backend },
      });
      if (output !== expected) throw new Error(`${title} printed ${JSON.stringify(output)}, not what README.md says`);
    }
  }
}

/** A gateway of the installed packages: its pages, a command in a sandbox whose network has a proxy, MCP. */
async function checkGateway(): Promise<void> {
  const home = join(project, "home-gateway");
  const config = join(project, "sandlot.json");
  const network = { mode: "allowlist", allow: [{ host: "example.com", ports: [80] }] };
  writeFileSync(config, JSON.stringify({ home, pool: {}, blueprints: { default: { network } } }));
  const launcher = join(project, "node_modules", "sandlot", "bin", "sandlot.mjs");
  const env = childEnvironment({ SANDLOT_HOME: home });
  const args = ["serve", "--port", "0", "--json", "--config", config];
  const served = spawn(process.execPath, [launcher, ...args], {
    cwd: project,
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(served, "close");
  try {
    const [line] = (await Promise.race([once(served.stdout, "data"), ended.then(() => ["{}"])])) as [Buffer];
    const { listening } = JSON.parse(String(line)) as { listening?: string };
    if (listening === undefined) throw new Error("the gateway did not start");
    const key = readFileSync(join(home, "operator.key"), "utf8").trim();
    const ask = async (path: string, body?: unknown): Promise<string> => {
      const answer = await fetch(`${listening}${path}`, {
        headers: {
          authorization: `Bearer ${key}`,
          accept: path.startsWith("/mcp") ? "application/json, text/event-stream" : "*/*",
          ...(body !== undefined && { "content-type": "application/json" }),
        },
        ...(body !== undefined && { method: "POST", body: JSON.stringify(body) }),
      });
      const text = await answer.text();
      if (!answer.ok) throw new Error(`${path}: ${answer.status} ${text}`);
      return text;
    };
    expectIncludes(await ask("/docs/"), "swagger-ui");
    expectIncludes(await ask("/docs/static/swagger-ui-bundle.js"), "SwaggerUIBundle");
    expectIncludes(await ask("/openapi.json"), "/v1/threads/");
    expectIncludes(await ask("/metrics"), "sandlot_");
    // The proxy's refusal text comes from the process beside the sandbox through the one inside it.
    const command = "curl -sS http://refused.example/ || wget -qO- http://refused.example/";
    expectIncludes(await ask("/v1/threads/t1/exec", { command }), "refused.example");
    const initialize = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "check", version: "1" } };
    const rpc = { jsonrpc: "2.0", id: 1, method: "initialize", params: initialize };
    expectIncludes(await ask("/mcp/threads/t1", rpc), "serverInfo");
  } finally {
    served.kill("SIGTERM");
    await ended;
    step("end the gateway's sandbox", process.execPath, [launcher, "rm", "--thread", "t1", "--purge", "-c", config]);
  }
  console.log("serve: ok");
}

/** An error names the missing package, with the command that installs it. */
function checkMissingPeers(): void {
  const args = ["--no-install", "sandlot", "exec", "--thread", "t1", "--json", "--", "true"];
  const { stdout } = spawnSync("npx", args, {
    cwd: project,
    encoding: "utf8",
    env: childEnvironment({ ...environment, SANDLOT_BACKEND: "docker" }),
  });
  expectIncludes(stdout, "npm install dockerode@5");
  const convert = join(project, "node_modules/sandlot/dist/bundle/programs/gateway/documents/convert-document.js");
  const { status } = spawnSync(process.execPath, [convert, ".docx", "1000"], { input: "x" });
  if (status !== 3) throw new Error(`without its packages the converter ends with ${status}, not 3`);
}

/** From npm's cache if possible, otherwise from the registry. */
function install(specifiers: readonly string[]): void {
  const args = ["install", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
  step(`install ${specifiers.length} package(s)`, "npm", [...args, ...specifiers], { env: registryEnvironment() });
}

interface StepOptions {
  readonly cwd?: string;
  readonly environment?: Record<string, string>;
  readonly env?: NodeJS.ProcessEnv;
}

function step(title: string, command: string, args: readonly string[], options: StepOptions = {}): string {
  const startedAt = Date.now();
  const env = options.env ?? childEnvironment(options.environment);
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
