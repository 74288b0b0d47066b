/** The list of what is in an image, as SPDX 2.3: Debian's packages from dpkg, npm's from lockfiles and the bundle's licenses. */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/** The installed packages of a root file system's archive. */
export function debianPackages(archive) {
  const { status, stdout, stderr } = spawnSync("tar", ["-xOf", archive, "./var/lib/dpkg/status"], {
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });
  if (status !== 0) throw new Error(`${archive} has no list of packages: ${stderr.slice(-500)}`);
  return stdout.split("\n\n").flatMap((block) => {
    const field = (name) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1];
    if (!field("Status")?.endsWith(" installed")) return [];
    return [{ kind: "deb", name: field("Package"), version: field("Version"), architecture: field("Architecture") }];
  });
}

/** Installed packages, and those that are bundled into one of them. */
export function npmPackages(lockfile, licenses) {
  const { packages } = JSON.parse(readFileSync(lockfile, "utf8"));
  const installed = Object.entries(packages).map(([path, { version, license }]) => {
    return { kind: "npm", name: path.replace(/^.*node_modules\//, ""), version, license };
  });
  const bundled = readFileSync(licenses, "utf8")
    .split(/\n-{80}\n\n/)
    .flatMap((text) => [/^(\S+) (\d\S*)\n/.exec(text)].filter((found) => found !== null))
    .map((found) => ({ kind: "npm", name: found[1], version: found[2] }));
  const known = new Set(installed.map(({ name, version }) => `${name}@${version}`));
  return [...installed, ...bundled.filter(({ name, version }) => !known.has(`${name}@${version}`))];
}

export function spdx(reference, imageId, created, contents) {
  const listed = [...contents].sort((a, b) => (`${a.kind}/${a.name}` < `${b.kind}/${b.name}` ? -1 : 1));
  const root = { SPDXID: "SPDXRef-image", name: reference, versionInfo: imageId, ...UNKNOWN };
  const packages = listed.map((one, index) => ({
    SPDXID: `SPDXRef-${index}`,
    name: one.name,
    versionInfo: one.version,
    ...UNKNOWN,
    ...(typeof one.license === "string" && { licenseDeclared: one.license }),
    externalRefs: [{ referenceCategory: "PACKAGE-MANAGER", referenceType: "purl", referenceLocator: purl(one) }],
  }));
  const document = {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: reference,
    documentNamespace: `https://sandlot.dev/spdx/${createHash("sha256").update(imageId).digest("hex")}`,
    creationInfo: { created, creators: ["Tool: sandlot images/archives.mjs"] },
    packages: [root, ...packages],
    relationships: [
      { spdxElementId: "SPDXRef-DOCUMENT", relationshipType: "DESCRIBES", relatedSpdxElement: "SPDXRef-image" },
      ...packages.map(({ SPDXID }) => {
        return { spdxElementId: "SPDXRef-image", relationshipType: "CONTAINS", relatedSpdxElement: SPDXID };
      }),
    ],
  };
  return `${JSON.stringify(document, null, 1)}\n`;
}

const UNKNOWN = { downloadLocation: "NOASSERTION", licenseConcluded: "NOASSERTION", filesAnalyzed: false };

function purl({ kind, name, version, architecture }) {
  const encoded = name.replace(/^@/, "%40");
  if (kind === "deb") return `pkg:deb/debian/${encoded}@${encodeURIComponent(version)}?arch=${architecture}`;
  return `pkg:${kind}/${encoded}@${version}`;
}
