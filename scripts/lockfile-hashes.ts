/**
 * Every package of the lockfile has a hash, or npm would take whatever a registry sends. The exceptions are counted:
 * native parts of development tools for platforms other than the one that we build, test and publish on. The registry
 * in use returns 404 for them, so their hashes are unknown (`complete-lockfile.mjs`). `npm start` installs none of
 * them, on any platform; `npm test` on those platforms installs them without a check.
 */

/** The platform on which this repository is built, tested and published. */
const OURS = { os: "linux", cpu: "x64", libc: "glibc" } as const;

/** How many packages of each tool have no hash. One more is a problem; one fewer, and the number has to follow. */
const UNHASHED: Readonly<Record<string, number>> = {
  "@biomejs/cli-": 6,
  "@napi-rs/canvas-": 9,
  "@oxc-parser/binding-": 15,
};

export interface LockEntry {
  readonly resolved?: string;
  readonly integrity?: string;
  readonly link?: boolean;
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly libc?: readonly string[];
  readonly hasInstallScript?: boolean;
  readonly optionalDependencies?: Record<string, string>;
}

export function* unhashedProblems(
  packages: Readonly<Record<string, LockEntry>>,
  expected: Readonly<Record<string, number>> = UNHASHED,
): Generator<string> {
  const counts = new Map(Object.keys(expected).map((prefix) => [prefix, 0]));
  for (const [path, entry] of Object.entries(packages)) {
    // The repository's own packages are folders, and links to them.
    if (!path.includes("node_modules/") || entry.link) continue;
    if (entry.integrity !== undefined) {
      if (!/^sha512-[\w+/]{86}==$/.test(entry.integrity)) yield `package-lock.json: ${path} has no sha512 hash`;
      continue;
    }
    const prefix = [...counts.keys()].find((tool) => path.startsWith(`node_modules/${tool}`));
    if (prefix === undefined || !entry.optional || !entry.dev || isOurs(entry))
      yield `package-lock.json: ${path} has no hash; run \`npm run lock\``;
    else counts.set(prefix, (counts.get(prefix) ?? 0) + 1);
  }
  for (const [prefix, count] of counts)
    if (count !== expected[prefix])
      yield `package-lock.json: ${count} packages ${prefix}* have no hash, not ${expected[prefix]} as scripts/lockfile-hashes.ts says`;
}

function isOurs({ os, cpu, libc }: LockEntry): boolean {
  const allows = (list: readonly string[] | undefined, value: string) => list === undefined || list.includes(value);
  return allows(os, OURS.os) && allows(cpu, OURS.cpu) && allows(libc, OURS.libc);
}
