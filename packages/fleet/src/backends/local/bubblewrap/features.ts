/**
 * The version and the features of this machine's bubblewrap. Distributions add options to old versions, so the options
 * count and not the number.
 */

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { SandlotError } from "@sandlot/contract";

export interface BubblewrapFeatures {
  readonly version: string;
  /** No process inside can make a user namespace. The seccomp filter refuses it as well. */
  readonly disableUserNamespaces: boolean;
  /** File systems in memory can have a size. */
  readonly size: boolean;
}

/** Bubblewrap without these cannot isolate a sandbox as designed. */
const REQUIRED = ["--json-status-fd", "--perms", "--as-pid-1", "--unshare-user", "--cap-drop", "--seccomp"];
const INSTALL = "install bubblewrap 0.8 or newer (Debian, Ubuntu, Fedora, Arch and Alpine call the package bubblewrap)";

const run = promisify(execFile);

export async function bubblewrapFeatures(path: string): Promise<BubblewrapFeatures> {
  let version: string;
  let help: string;
  try {
    [version, help] = (await Promise.all([run(path, ["--version"]), run(path, ["--help"])])).map(
      ({ stdout }) => stdout,
    ) as [string, string];
  } catch (error) {
    const problem = `${path} cannot be run (${(error as NodeJS.ErrnoException).code ?? String(error)})`;
    throw new SandlotError("isolation_unavailable", { backend: "local", problem, fix: INSTALL }, { cause: error });
  }
  const missing = REQUIRED.filter((option) => !hasOption(help, option));
  if (missing.length > 0) {
    const problem = `${version.trim()} lacks ${missing.join(", ")}`;
    throw new SandlotError("isolation_unavailable", { backend: "local", problem, fix: INSTALL });
  }
  return {
    version: version.trim().split(" ").at(-1) ?? "",
    disableUserNamespaces: hasOption(help, "--disable-userns"),
    size: hasOption(help, "--size"),
  };
}

function hasOption(help: string, option: string): boolean {
  return new RegExp(`^\\s+${option}\\s`, "m").test(help);
}
