/**
 * The parts of the machine, from Debian's packages: a Linux that runs as a program (user-mode-linux), which needs no
 * hardware and no rights beyond those of the account, and the maker of xfs. Installed packages are used; others are
 * downloaded into a cache and unpacked there, and nothing on this machine changes.
 */

import { execFileSync } from "node:child_process";
import { accessSync, constants, existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

export interface Kernel {
  readonly program: string;
  readonly modules: string;
  /** Arguments and environment of `mkfs.xfs`. */
  readonly makeXfs: { readonly program: string; readonly libraries: string };
}

/** Programs of this machine that the other uses through the shared files, and the package of each. */
const PROGRAMS = {
  "mkfs.ext4": "e2fsprogs",
  chattr: "e2fsprogs",
  setquota: "quota",
  repquota: "quota",
  busybox: "busybox",
  bwrap: "bubblewrap",
} as const;
const PACKAGES = ["user-mode-linux", "xfsprogs", "libinih1", "liburcu8"] as const;
const FOLDERS = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/** One line per missing program. */
export function missingPrograms(): readonly string[] {
  if (process.platform !== "linux" || process.arch !== "x64") return ["the machine needs Linux on x64"];
  if (process.getuid?.() !== 0) return ["the machine shows the host's files as they are, which takes root"];
  const missing = Object.entries(PROGRAMS).filter(([name]) => find(name) === null);
  if (missing.length === 0) return [];
  const packages = [...new Set(missing.map(([, name]) => name))].join(" ");
  return [`${missing.map(([name]) => name).join(", ")} not found: apt-get install ${packages}`];
}

export function findKernel(): Kernel {
  const installed = find("linux.uml");
  const root = installed !== null && find("mkfs.xfs") !== null ? "/" : unpacked();
  const versions = join(root, "usr/lib/uml/modules");
  const [version = ""] = readdirSync(versions);
  const makeXfs = ["sbin/mkfs.xfs", "usr/sbin/mkfs.xfs"].map((path) => join(root, path)).find(existsSync) ?? "mkfs.xfs";
  return {
    program: join(root, "usr/bin/linux.uml"),
    modules: join(versions, version),
    makeXfs: { program: makeXfs, libraries: join(root, "usr/lib/x86_64-linux-gnu") },
  };
}

/** The cache appears complete, by a rename. */
function unpacked(): string {
  const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "sandlot", "vm");
  if (existsSync(cache)) return cache;
  const coming = `${cache}.${process.pid}`;
  mkdirSync(coming, { recursive: true });
  try {
    console.log(`vm: downloading ${PACKAGES.join(", ")} into ${cache}`);
    execFileSync("apt-get", ["download", ...PACKAGES], { cwd: coming, stdio: ["ignore", "ignore", "pipe"] });
    for (const name of readdirSync(coming).filter((file) => file.endsWith(".deb"))) {
      execFileSync("dpkg-deb", ["-x", join(coming, name), coming]);
      rmSync(join(coming, name));
    }
    renameSync(coming, cache);
    return cache;
  } catch (error) {
    const said = (error as { stderr?: Buffer }).stderr?.toString().trim() ?? String(error);
    throw new Error(`no kernel: ${said}\nvm: apt-get install ${PACKAGES.join(" ")}`, { cause: error });
  } finally {
    rmSync(coming, { recursive: true, force: true });
  }
}

function find(program: string): string | null {
  for (const folder of FOLDERS) {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return join(folder, program);
    } catch {}
  }
  return null;
}
