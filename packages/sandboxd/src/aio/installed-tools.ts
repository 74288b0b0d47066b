/**
 * The programs for `/v1/sandbox`: versions of Python and Node, and the names of others. Searched once: an image does not
 * change, and clients poll this to see whether the sandbox is there. Only the folders of the commands' PATH that a
 * sandbox cannot write are searched, because the daemon runs what it finds.
 */

import { execFile } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { HOME_LINK, KEPT_HOME, SYSTEM_PATH, WORKSPACE_ROOT } from "@sandlot/contract";
import type { ExecTable } from "../exec/exec-table.ts";

interface ToolSpec {
  readonly ver: string;
  readonly bin: string;
  readonly alias: readonly string[];
}

export interface InstalledTools {
  readonly python: readonly ToolSpec[];
  readonly nodejs: readonly ToolSpec[];
  readonly utils: readonly { category: string; tools: readonly { name: string; description: null }[] }[];
}

/** Many times a version query. A program that is not what its name says must not delay the response. */
const VERSION_TIMEOUT_MS = 2_000;
const ANSWER_MAX_BYTES = 1_024;
const UTILITIES: Readonly<Record<string, readonly string[]>> = {
  "version control": ["git"],
  network: ["curl", "wget", "ssh"],
  search: ["rg", "find", "grep"],
  build: ["gcc", "make"],
  text: ["jq", "sed", "awk"],
};

let found: Promise<InstalledTools> | null = null;

export function installedTools({ around }: ExecTable): Promise<InstalledTools> {
  found ??= look(around.environment);
  return found;
}

async function look(environment: Readonly<Record<string, string>>): Promise<InstalledTools> {
  const { HOME = KEPT_HOME, PATH = SYSTEM_PATH } = environment;
  const isOwn = (folder: string) => [HOME, WORKSPACE_ROOT, HOME_LINK].some((root) => folder.startsWith(`${root}/`));
  const path = PATH.split(":")
    .filter((folder) => !isOwn(folder))
    .join(":");
  const [python, nodejs] = await Promise.all(["python3", "node"].map((name) => specOf(name, path, environment)));
  const utils = Object.entries(UTILITIES).flatMap(([category, names]) => {
    const tools = names.filter((name) => placeOf(name, path) !== null).map((name) => ({ name, description: null }));
    return tools.length === 0 ? [] : [{ category, tools }];
  });
  return { python: python ?? [], nodejs: nodejs ?? [], utils };
}

async function specOf(
  name: string,
  path: string,
  environment: Readonly<Record<string, string>>,
): Promise<readonly ToolSpec[]> {
  const bin = placeOf(name, path);
  if (bin === null) return [];
  const said = await new Promise<string>((resolve) => {
    const options = { env: environment, timeout: VERSION_TIMEOUT_MS, maxBuffer: ANSWER_MAX_BYTES, cwd: "/" } as const;
    execFile(bin, ["--version"], options, (error, stdout) => resolve(error === null ? stdout : "")).stdin?.end();
  });
  const ver = /\d+\.\d+(?:\.\d+)?/.exec(said)?.[0];
  return ver === undefined ? [] : [{ ver, bin, alias: [name] }];
}

function placeOf(name: string, path: string): string | null {
  for (const folder of path.split(":").filter((one) => one.startsWith("/"))) {
    try {
      accessSync(`${folder}/${name}`, constants.X_OK);
      return `${folder}/${name}`;
    } catch {
      // Missing, or not executable for us.
    }
  }
  return null;
}
