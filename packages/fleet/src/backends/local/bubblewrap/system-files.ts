/**
 * The part of the host's system that a sandbox sees: programs and libraries, read-only, and the files of `/etc` that
 * programs need, without those that reveal this machine, its users or its secrets.
 */

import { lstatSync, readlinkSync } from "node:fs";
import { PROC_MASKED } from "../../../host/mounts/masked-proc.ts";
import { INNER_ACCOUNT } from "../../../sandboxd/inner-account.ts";

/** Directories of programs at the top. On most systems they are links into `/usr`. */
const PROGRAM_DIRECTORIES = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/**
 * The same as on the host, where they exist. Certificates yes, keys no. Files are copied, which is cheaper than a
 * mount.
 */
const ETC_ALLOWED = [
  "alternatives",
  "crypto-policies",
  "fonts",
  "java-11-openjdk",
  "java-17-openjdk",
  "java-21-openjdk",
  "ld.so.cache",
  "localtime",
  "mime.types",
  "os-release",
  "pki/ca-trust",
  "pki/tls/cert.pem",
  "pki/tls/certs",
  "protocols",
  "services",
  "ssl/cert.pem",
  "ssl/certs",
  "ssl/openssl.cnf",
  "timezone",
] as const;

/** Bubblewrap's arguments for programs, libraries and the entries of the host's `/etc` that are not regular files. */
export function systemArguments(): readonly string[] {
  const places = [...PROGRAM_DIRECTORIES, ...ETC_ALLOWED.map((name) => `/etc/${name}`)];
  return ["--ro-bind", "/usr", "/usr", ...places.filter((path) => kindOf(path) !== "file").flatMap(shown)];
}

/** The regular files of the host's part of `/etc`. */
export function systemFiles(): readonly string[] {
  return ETC_ALLOWED.map((name) => `/etc/${name}`).filter((path) => kindOf(path) === "file");
}

/**
 * Arguments that mount a fresh `/proc` and cover the files that would reveal the host, where they are readable without
 * root.
 */
export function procArguments(): readonly string[] {
  const masked = PROC_MASKED.map((name) => `/proc/${name}`).flatMap((path) => {
    const kind = isPublic(path) ? kindOf(path) : "absent";
    if (kind === "file") return ["--ro-bind", "/dev/null", path];
    return kind === "directory" ? ["--tmpfs", path, "--remount-ro", path] : [];
  });
  return ["--proc", "/proc", ...masked];
}

export const PASSWD = "/etc/passwd";

/** The accounts of sandboxes with this home. */
export function passwdText(home: string): string {
  const { name, uid, gid } = INNER_ACCOUNT;
  return (
    `root:x:0:0:root:/root:/usr/sbin/nologin\n${name}:x:${uid}:${gid}:Sandbox:${home}:/bin/sh\n` +
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
  );
}

/** Files that are the same in every sandbox, with their contents. */
export function syntheticFiles(resolvConf: string): Readonly<Record<string, string>> {
  const { name, gid } = INNER_ACCOUNT;
  return {
    "/etc/group": `root:x:0:\n${name}:x:${gid}:\nnogroup:x:65534:\n`,
    "/etc/hostname": `${HOSTNAME}\n`,
    "/etc/hosts": `127.0.0.1 localhost ${HOSTNAME}\n::1 localhost ip6-localhost ip6-loopback\n`,
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    "/etc/resolv.conf": resolvConf,
  };
}

export const HOSTNAME = "sandbox";

function shown(path: string): string[] {
  const kind = kindOf(path);
  if (kind === "link") return ["--symlink", readlinkSync(path), path];
  return kind === "absent" ? [] : ["--ro-bind", path, path];
}

function isPublic(path: string): boolean {
  return ((lstatSync(path, { throwIfNoEntry: false })?.mode ?? 0) & 0o004) !== 0;
}

function kindOf(path: string): "file" | "directory" | "link" | "absent" {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return "absent";
  if (stat.isSymbolicLink()) return "link";
  return stat.isDirectory() ? "directory" : "file";
}
