/**
 * Optional peer packages, imported on first use. The error for a missing package gives the install command, with the
 * version that this package was tested with. The command names the install directory, so it works from every directory.
 */

import { SandlotError } from "@sandlot/contract";
import { type Installation, installation, packageManifest } from "./package-files.ts";

export type OptionalPeer =
  | "@kubernetes/client-node"
  | "@larksuiteoapi/node-sdk"
  | "@redis/client"
  | "dockerode"
  | "officeparser"
  | "pg"
  | "read-excel-file";

/** `load` imports the package. Rejects with `dependency_missing` when that fails. */
export async function importPeer<T>(name: OptionalPeer, neededBy: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    throw missingPeer([name], neededBy, error);
  }
}

export function missingPeer(names: readonly OptionalPeer[], neededBy: string, cause?: unknown): SandlotError {
  const install = installCommand(names, installation());
  return new SandlotError("dependency_missing", { package: names.join(" and "), neededBy, install }, { cause });
}

/** In a checkout the command installs everything: `npm start` skips these, and a build expects a full install. */
export function installCommand(names: readonly OptionalPeer[], place: Installation): string {
  if (place.kind === "checkout") return `npm ci --prefix ${quoted(place.directory)}`;
  const where = place.kind === "global" ? "--global" : `--prefix ${quoted(place.directory)}`;
  return `npm install ${names.map(wanted).join(" ")} ${where}`;
}

/** Quotes a path as one shell word. */
function quoted(path: string): string {
  return /^[\w@%+=:,./\\-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}

/** The package name with its major version: `dockerode@5`. */
function wanted(name: OptionalPeer): string {
  const { peerDependencies } = packageManifest();
  const major = /\d+/.exec(peerDependencies[name] ?? "")?.[0];
  return major === undefined ? name : `${name}@${major}`;
}
