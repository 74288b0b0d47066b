/**
 * Packages that only some fleets need: optional peers, imported when they are used. One that is missing is an error that
 * names the command that installs it, in the version that this package was tested with. In a checkout that is the one that
 * installs everything, because `npm start` leaves these packages out.
 */

import { SandlotError } from "@sandlot/contract";
import { IN_CHECKOUT, packageManifest } from "./package-files.ts";

export type OptionalPeer = "@larksuiteoapi/node-sdk" | "dockerode" | "just-bash" | "officeparser" | "read-excel-file";

/** `load` imports the package. Rejects with `dependency_missing` when that fails. */
export async function importPeer<T>(name: OptionalPeer, neededBy: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    throw missingPeer([name], neededBy, error);
  }
}

export function missingPeer(names: readonly OptionalPeer[], neededBy: string, cause?: unknown): SandlotError {
  const install = IN_CHECKOUT ? "npm run build" : `npm install ${names.map(wanted).join(" ")}`;
  return new SandlotError("dependency_missing", { package: names.join(" and "), neededBy, install }, { cause });
}

/** With the major version: `dockerode@5`. */
function wanted(name: OptionalPeer): string {
  const { peerDependencies } = packageManifest();
  const major = /\d+/.exec(peerDependencies[name] ?? "")?.[0];
  return major === undefined ? name : `${name}@${major}`;
}
