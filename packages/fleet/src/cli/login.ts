/**
 * The gateway that this account is logged in to: its URL and a key, in a private file of the configuration directory.
 * `--url` and `$SANDLOT_URL` take precedence; `local` there means a private fleet.
 */

import { chmod, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { SandlotError } from "@sandlot/contract";
import type { Environment } from "../config/variables.ts";

export interface Login {
  readonly url: string;
  readonly apiKey: string;
}

function loginPath(environment: Environment): string {
  const base = environment.XDG_CONFIG_HOME || join(environment.HOME || homedir(), ".config");
  return join(base, "sandlot", "login.json");
}

export async function readLogin(environment: Environment): Promise<Login | null> {
  const path = loginPath(environment);
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT" || error.code === "ENOTDIR") return null;
    throw unusable(path, `cannot be read (${error.code})`);
  });
  if (text === null) return null;
  try {
    const { url, apiKey } = JSON.parse(text) as Partial<Login>;
    if (typeof url === "string" && typeof apiKey === "string") return { url, apiKey };
  } catch {
    // Reported below.
  }
  throw unusable(path, "is not a login; run `sandlot login` again");
}

/** Written atomically, and never readable by others, not even for a moment. Resolves with the path. */
export async function writeLogin(login: Login, environment: Environment): Promise<string> {
  const path = loginPath(environment);
  const draft = `${path}.${process.pid}`;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await writeFile(draft, `${JSON.stringify(login)}\n`, { mode: 0o600 });
    await chmod(draft, 0o600);
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw unusable(path, `cannot be written (${(error as NodeJS.ErrnoException).code})`);
  }
  return path;
}

/** False when there was none. */
export async function removeLogin(environment: Environment): Promise<boolean> {
  const had = (await readLogin(environment).catch(() => true)) !== null;
  await rm(loginPath(environment), { force: true });
  return had;
}

function unusable(path: string, problem: string): SandlotError {
  return new SandlotError("invalid_request", { field: "login", problem: `${path} ${problem}` });
}
