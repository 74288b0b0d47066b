/**
 * Commands that create a network namespace, or enter that of a process.
 *
 * A root fleet's namespace belongs to the host, so nothing inside a sandbox's user namespace has rights over it. An
 * ordinary user's namespace belongs to a separate user namespace around the sandbox's, with the same effect.
 */

export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

export function makeNamespace(): readonly string[] {
  return isRoot() ? ["unshare", "--net"] : ["unshare", "--user", "--map-root-user", "--net"];
}

/** A command prefix that runs the command in the namespace of this process. */
export function enterNamespace(pid: number): readonly string[] {
  const network = `--net=/proc/${pid}/ns/net`;
  return isRoot()
    ? ["nsenter", network]
    : ["nsenter", "--preserve-credentials", `--user=/proc/${pid}/ns/user`, network];
}
