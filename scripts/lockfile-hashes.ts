/**
 * Every package of the lockfile has a hash, or npm would take whatever a registry answers with. The one exception are optional
 * packages for other platforms than the one that we build, test and publish on: where the registry in use does not carry
 * them, there is no hash to be had (`complete-lockfile.mjs`).
 */

/** Where this repository is built, tested and published. */
const OURS = { os: "linux", cpu: "x64", libc: "glibc" } as const;

export interface LockEntry {
  readonly resolved?: string;
  readonly integrity?: string;
  readonly link?: boolean;
  readonly optional?: boolean;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly libc?: readonly string[];
  readonly hasInstallScript?: boolean;
  readonly optionalDependencies?: Record<string, string>;
}

export function* unhashedProblems(packages: Readonly<Record<string, LockEntry>>): Generator<string> {
  for (const [path, entry] of Object.entries(packages)) {
    // The repository's own packages are folders, and links to them.
    if (!path.includes("node_modules/") || entry.link) continue;
    if (entry.integrity !== undefined) {
      if (!/^sha512-[\w+/]{86}==$/.test(entry.integrity)) yield `package-lock.json: ${path} has no sha512 hash`;
    } else if (!entry.optional || isOurs(entry)) {
      yield `package-lock.json: ${path} has no hash; run \`npm run lock\``;
    }
  }
}

function isOurs({ os, cpu, libc }: LockEntry): boolean {
  const allows = (list: readonly string[] | undefined, value: string) => list === undefined || list.includes(value);
  return allows(os, OURS.os) && allows(cpu, OURS.cpu) && allows(libc, OURS.libc);
}
