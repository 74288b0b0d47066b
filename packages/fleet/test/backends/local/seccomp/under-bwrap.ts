/**
 * Runs programs in bubblewrap with and without the filter as the only difference: the whole host is readable, and the
 * namespaces' own capabilities can be kept, so that a failure with the filter comes from the filter.
 */

import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  buildSeccompFilter,
  FILTER_ARCHITECTURES,
  type FilterArchitecture,
} from "../../../../src/backends/local/seccomp/index.ts";

/** The variables of `npm test` would lead an npm inside to this checkout. */
const OWN_ENVIRONMENT = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !/^npm_|^INIT_CWD$/.test(name)),
);
const CHECKOUT = fileURLToPath(new URL("../../../../../../", import.meta.url));

export interface BwrapOptions {
  readonly filter: boolean;
  /** Keeps all capabilities inside the namespaces. */
  readonly capable?: boolean;
  /** A writable directory of the host. */
  readonly writable?: string;
  readonly input?: string;
}

export interface BwrapEnd {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
}

const FILTER_FD = 3;

export function underBwrap(argv: readonly string[], options: BwrapOptions): Promise<BwrapEnd> {
  const directory = mkdtempSync(join(tmpdir(), "sandlot-filter-"));
  const file = join(directory, "filter");
  writeFileSync(file, buildSeccompFilter(hostArchitecture()));
  const fd = openSync(file, "r");
  rmSync(directory, { recursive: true });
  const { writable, capable = false, filter } = options;
  // For another uid bwrap puts a second user namespace around the program, whose capabilities are useless.
  const id = capable ? "0" : "1000";
  const child = spawn(
    "bwrap",
    [
      ...["--unshare-all", "--unshare-user", "--uid", id, "--gid", id, "--die-with-parent", "--ro-bind", "/", "/"],
      ...["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/home", "--setenv", "HOME", "/home"],
      // The checkout's own Node is in PATH, and the checkout may lie in a directory that was just covered.
      ...["--ro-bind", CHECKOUT, CHECKOUT],
      ...(writable === undefined ? [] : ["--bind", writable, writable, "--chdir", writable]),
      ...(capable ? ["--cap-add", "ALL"] : []),
      ...(filter ? ["--seccomp", String(FILTER_FD)] : []),
      ...["--", ...argv],
    ],
    { stdio: ["pipe", "pipe", "pipe", fd], env: OWN_ENVIRONMENT },
  );
  closeSync(fd);
  const text = { stdout: "", stderr: "" };
  child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
    text.stdout += chunk;
  });
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
    text.stderr += chunk;
  });
  child.stdin?.on("error", () => {});
  child.stdin?.end(options.input ?? "");
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve({ code, signal, ...text }));
  });
}

export function hostArchitecture(): FilterArchitecture {
  if (!FILTER_ARCHITECTURES.includes(process.arch)) throw new Error(`There is no filter for ${process.arch}.`);
  return process.arch as FilterArchitecture;
}
