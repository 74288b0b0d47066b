/** Programs of this machine that a sandbox does not see by itself. */

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";

/** Where a sandbox sees Rust. */
export const RUST = "/opt/rust";

export interface Toolchain {
  /** The directory to mount at `RUST`; `null` where cargo needs none, or there is none. */
  readonly rust: string | null;
  /** The folders inside with these programs; `null` where there is none. */
  readonly cargo: string | null;
  readonly go: string | null;
  /** Sets the path of a command. */
  readonly path: string;
}

export function toolchain(): Toolchain {
  const go = ["/usr/local/go/bin", "/usr/lib/go/bin"].find((path) => existsSync(join(path, "go"))) ?? null;
  const rust = rustup();
  const cargo = rust !== null ? `${RUST}/bin` : existsSync("/usr/bin/cargo") ? "/usr/bin" : null;
  const path = `export PATH=${[cargo, go].filter((part) => part !== null).join(":")}:$PATH`;
  return { rust, cargo, go, path };
}

function rustup(): string | null {
  try {
    return dirname(dirname(execFileSync("env", ["rustup", "which", "cargo"], { encoding: "utf8" }).trim()));
  } catch {
    return null;
  }
}
