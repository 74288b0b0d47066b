/**
 * An empty project with our packages in their published form: packed, unpacked, without access to the sources. Their
 * dependencies are linked from this repository, so that nothing is fetched.
 */

import { execFileSync, spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "../../../..");
const FOLDERS = ["contract", "sandboxd", "client", "fleet"].map((name) => `packages/${name}`);
const PINNED_NODE = join(ROOT, "node_modules/.bin/node");
/** The Node of this repository, also where the tests run on an older one. */
const NODE = existsSync(PINNED_NODE) ? PINNED_NODE : process.execPath;

export interface PackedProject {
  readonly directory: string;
  /** The environment of a program in it: the state is below the project, and no registry is contacted. */
  readonly environment: NodeJS.ProcessEnv;
  /** Runs a program (an ES module) in it. */
  run(program: string): { readonly status: number | null; readonly stdout: string; readonly stderr: string };
  remove(): void;
}

/** Why a project is impossible now; `null` when it is possible. */
export function whyNotPacked(): string | null {
  const missing = FOLDERS.find((folder) => !existsSync(join(ROOT, folder, "dist/index.d.ts")));
  return missing === undefined ? null : `${missing} is not built: run npm run build`;
}

export function packedProject(): PackedProject {
  const directory = mkdtempSync(join(tmpdir(), "sandlot-stranger-"));
  const modules = join(directory, "node_modules");
  mkdirSync(join(modules, ".bin"), { recursive: true });
  linkOthers(modules);
  for (const { folder, tarball } of pack(directory)) unpack(folder, tarball, modules);
  symlinkSync("../sandlot/bin/sandlot.mjs", join(modules, ".bin/sandlot"));
  writeFileSync(join(directory, "package.json"), '{ "private": true, "type": "module" }\n');
  const environment = cleanEnvironment(directory);
  return {
    directory,
    environment,
    run(program) {
      const file = join(directory, "program.js");
      writeFileSync(file, program);
      return spawnSync(NODE, [file], { cwd: directory, env: environment, encoding: "utf8" });
    },
    remove: () => rmSync(directory, { recursive: true, force: true }),
  };
}

function pack(destination: string): { folder: string; tarball: string }[] {
  const args = ["pack", "--json", "--ignore-scripts", "--pack-destination", destination];
  const output = execFileSync("npm", [...args, ...FOLDERS.map((folder) => `./${folder}`)], {
    cwd: ROOT,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  const packed = JSON.parse(output) as { name: string; filename: string }[];
  return FOLDERS.map((folder) => {
    const { name } = JSON.parse(readFileSync(join(ROOT, folder, "package.json"), "utf8")) as { name: string };
    const found = packed.find((one) => one.name === name);
    if (found === undefined) throw new Error(`${name} was not packed`);
    return { folder, tarball: join(destination, found.filename) };
  });
}

function unpack(folder: string, tarball: string, modules: string): void {
  const { name } = JSON.parse(readFileSync(join(ROOT, folder, "package.json"), "utf8")) as { name: string };
  const place = join(modules, name);
  mkdirSync(place, { recursive: true });
  execFileSync("tar", ["-xzf", tarball, "--strip-components=1", "-C", place]);
  rmSync(tarball);
  // The packages installed for this package alone.
  const own = join(ROOT, folder, "node_modules");
  if (existsSync(own)) symlinkSync(own, join(place, "node_modules"));
}

function linkOthers(modules: string): void {
  const installed = join(ROOT, "node_modules");
  for (const name of readdirSync(installed))
    if (!name.startsWith(".") && name !== "sandlot" && name !== "@sandlot")
      symlinkSync(join(installed, name), join(modules, name));
}

/** Neither this repository's settings nor npm's own variables. */
function cleanEnvironment(directory: string): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !/^(?:SANDLOT_|npm_|NODE_OPTIONS|VITEST)/.test(name));
  const path = (process.env.PATH ?? "").split(":").filter((part) => !part.endsWith("node_modules/.bin"));
  return {
    ...Object.fromEntries(kept),
    PATH: [join(directory, "node_modules/.bin"), join(ROOT, "node_modules/.bin"), ...path].join(":"),
    SANDLOT_HOME: join(directory, "home"),
    npm_config_offline: "true",
    npm_config_update_notifier: "false",
  };
}
