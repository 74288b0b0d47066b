/**
 * Packages that only some fleets need: optional peers, imported when they are used. One that is missing is an error that
 * names the command that installs it, in the version that this package was tested with. The command mends it from every
 * directory: it names the place from which this package finds others.
 */

import { SandlotError } from "@sandlot/contract";
import { type Installation, installation, packageManifest } from "./package-files.ts";

export type OptionalPeer = "@larksuiteoapi/node-sdk" | "dockerode" | "officeparser" | "read-excel-file";

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

/** In a checkout all packages are installed: `npm start` leaves these out, and a build takes what is there for complete. */
export function installCommand(names: readonly OptionalPeer[], place: Installation): string {
  if (place.kind === "checkout") return `npm ci --prefix ${quoted(place.directory)}`;
  const where = place.kind === "global" ? "--global" : `--prefix ${quoted(place.directory)}`;
  return `npm install ${names.map(wanted).join(" ")} ${where}`;
}

/** As a shell takes it for one word. */
function quoted(path: string): string {
  return /^[\w@%+=:,./\\-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}

/** With the major version: `dockerode@5`. */
function wanted(name: OptionalPeer): string {
  const { peerDependencies } = packageManifest();
  const major = /\d+/.exec(peerDependencies[name] ?? "")?.[0];
  return major === undefined ? name : `${name}@${major}`;
}
