/**
 * The files by which programs of this sandbox trust the egress: the authority alone, and a bundle with the image's own
 * certificates. Programs replace their trust by a bundle, so it must have both.
 */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { type DaemonTrust, SYSTEM_BUNDLES, TRUST_FILES } from "@sandlot/contract";

export async function writeTrustFiles({ directory, certificatePem }: DaemonTrust): Promise<void> {
  mkdirSync(directory, { recursive: true, mode: 0o755 });
  writeFileSync(`${directory}/${TRUST_FILES.authority}`, certificatePem, { mode: 0o644 });
  writeFileSync(`${directory}/${TRUST_FILES.bundle}`, `${await publicCertificates()}\n${certificatePem}`, {
    mode: 0o644,
  });
}

/** Those of the image, or of Node where the image has none. */
async function publicCertificates(): Promise<string> {
  const found = SYSTEM_BUNDLES.find((path) => existsSync(path));
  if (found !== undefined) return readFileSync(found, "utf8");
  const { rootCertificates } = await import("node:tls");
  return rootCertificates.join("\n");
}
