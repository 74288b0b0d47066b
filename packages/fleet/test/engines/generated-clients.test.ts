/**
 * Clients that foreign generators make of the OpenAPI document, one for Python and one for TypeScript, against a real
 * gateway: the document is enough to run commands, move bytes and read errors. The generators come from their package
 * registries, once, and stay in `.cache/`; the one for TypeScript brings the compiler that it needs.
 */

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, type TestContext, test } from "vitest";
import { registryEnvironment } from "../../../../scripts/runtime.mjs";
import { type Caller, openStage, type Stage } from "../gateway/support/stage.ts";

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const PROGRAMS = fileURLToPath(new URL("generated/", import.meta.url));
const PYTHON = "openapi-python-client==0.29.1";
const TYPESCRIPT = ["openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3"];
/** Fetching packages on a busy machine. A hanging installer is ended and retried once. */
const INSTALL_MS = 120_000;
const TEST_MS = 4 * INSTALL_MS;
const INSTALLING = { timeout: INSTALL_MS, killSignal: "SIGKILL", env: registryEnvironment() } as const;

let stage: Stage;
let user: Caller;
let place: string;
let document: string;

beforeAll(async () => {
  stage = await openStage();
  user = await stage.user("alice");
  place = await mkdtemp(join(tmpdir(), "sandlot-generated-"));
  document = join(place, "openapi.json");
  await writeFile(document, await (await user.call("GET", "/openapi.json")).text());
});
afterAll(async () => {
  await stage.done();
  await rm(place, { recursive: true, force: true });
});

/** A generator's home, made whole or not at all; an unreachable registry skips the test with that reason. */
async function installed(context: TestContext, name: string, install: (home: string) => Promise<unknown>) {
  const home = join(ROOT, ".cache", name);
  if (existsSync(home)) return home;
  await mkdir(join(ROOT, ".cache"), { recursive: true });
  const draft = await mkdtemp(join(ROOT, ".cache", `${name}-`));
  try {
    await install(draft).catch(() => install(draft));
    await rename(draft, home);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    context.skip(`${name} could not be installed: ${String(error).slice(0, 500)}`);
  }
  return home;
}

const environment = () => ({ ...process.env, SANDLOT_URL: stage.gateway.url, SANDLOT_API_KEY: user.key });

const seenIn = (thread: string) => ({
  stdout: "hello",
  exitCode: 3,
  sizeBytes: 7,
  content: Buffer.from([0, 255, ...Buffer.from("bytes")]).toString("hex"),
  uploads: [`/v1/threads/${thread}/artifacts/mnt/user-data/uploads/up.txt`],
  missing: "file_not_found",
  refused: [401, "unauthorized"],
});

test("Python: openapi-python-client", { timeout: TEST_MS }, async (context) => {
  // A virtual environment does not move, so packages go into a plain directory.
  const home = await installed(context, PYTHON.replace("==", "-"), (into) =>
    run("python3", ["-m", "pip", "install", "--quiet", "--no-compile", "--target", into, PYTHON], INSTALLING),
  );
  const env = { ...environment(), PYTHONPATH: home, PATH: `${join(home, "bin")}:${process.env.PATH}` };
  const out = join(place, "python", "sandlot_api");
  await mkdir(join(place, "python"));
  const generate = ["generate", "--path", document, "--output-path", out, "--meta", "none", "--fail-on-warning"];
  await run("python3", ["-m", "openapi_python_client", ...generate], { env });
  const { stdout } = await run("python3", [join(PROGRAMS, "client.py"), join(place, "python")], { env });
  expect(JSON.parse(stdout)).toEqual(seenIn("python"));
});

test("TypeScript: openapi-typescript and openapi-fetch", { timeout: TEST_MS }, async (context) => {
  const home = await installed(context, `openapi-typescript-7.13.0`, async (into) => {
    await writeFile(join(into, "package.json"), '{ "private": true, "type": "module" }\n');
    const quiet = ["--ignore-scripts", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"];
    await run("npm", ["install", "--prefix", into, ...quiet, ...TYPESCRIPT], { cwd: into, ...INSTALLING });
  });
  const project = join(place, "typescript");
  await mkdir(project);
  await writeFile(join(project, "package.json"), '{ "private": true, "type": "module" }\n');
  await symlink(join(home, "node_modules"), join(project, "node_modules"));
  await copyFile(join(PROGRAMS, "client.ts.txt"), join(project, "client.ts"));
  const generator = join(home, "node_modules/openapi-typescript/bin/cli.js");
  await run(process.execPath, [generator, document, "--output", join(project, "api.d.ts")], { cwd: project });
  const rules = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "esnext"];
  const types = ["--allowImportingTsExtensions", "--types", "node", "--typeRoots", join(ROOT, "node_modules/@types")];
  const compiler = join(home, "node_modules/typescript/bin/tsc");
  await run(process.execPath, [compiler, ...rules, ...types, "client.ts"], { cwd: project }).catch((error) => {
    throw new Error(`client.ts does not compile: ${error.stdout}`);
  });
  const { stdout } = await run(process.execPath, ["client.ts"], { cwd: project, env: environment() });
  expect(JSON.parse(stdout)).toEqual(seenIn("typescript"));
});
