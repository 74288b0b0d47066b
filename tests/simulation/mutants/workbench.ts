/**
 * A workbench: a copy of the sources to plant a mutant in; the working sources stay unchanged. Installed packages are
 * linked; the workspace's own packages lead to the copy.
 */

import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const ROOT = join(import.meta.dirname, "../../..");
/** The sources of the simulation. Tests, builds and installed packages are not copied. */
const LEFT_OUT = new Set(["node_modules", "dist", "test", "mutants"]);

export class Workbench {
  readonly path = mkdtempSync(join(tmpdir(), "sandlot-mutant-"));

  constructor() {
    for (const name of ["packages", "tests/simulation"]) {
      cpSync(join(ROOT, name), join(this.path, name), {
        recursive: true,
        filter: (from) => !LEFT_OUT.has(from.slice(from.lastIndexOf("/") + 1)),
      });
    }
    writeFileSync(join(this.path, "package.json"), '{ "private": true, "type": "module" }\n');
    this.#link();
  }

  #link(): void {
    const installed = join(ROOT, "node_modules");
    const own = join(this.path, "node_modules");
    mkdirSync(join(own, "@sandlot"), { recursive: true });
    for (const name of readdirSync(installed)) {
      if (name !== "@sandlot" && name !== "sandlot" && !name.startsWith("."))
        symlinkSync(join(installed, name), join(own, name));
    }
    for (const folder of readdirSync(join(this.path, "packages"))) {
      const manifest = join(this.path, "packages", folder, "package.json");
      if (!existsSync(manifest)) continue;
      const { name } = JSON.parse(readFileSync(manifest, "utf8")) as { name: string };
      symlinkSync(join(this.path, "packages", folder), join(own, name));
    }
    // Packages that npm installed for one workspace only.
    for (const folder of readdirSync(join(ROOT, "packages"))) {
      const nested = join(ROOT, "packages", folder, "node_modules");
      if (existsSync(nested)) symlinkSync(nested, join(this.path, "packages", folder, "node_modules"));
    }
  }

  /** Replaces `find`, which must occur exactly once, by `put`. */
  plant(file: string, find: string, put: string): void {
    const path = join(this.path, file);
    const before = readFileSync(path, "utf8");
    const parts = before.split(find);
    if (parts.length !== 2) throw new Error(`${file}: the text to replace occurs ${parts.length - 1} times, not once`);
    writeFileSync(path, parts.join(put));
  }

  /** Puts the original back. */
  restore(file: string): void {
    cpSync(join(ROOT, file), join(this.path, file));
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}
