/**
 * The engine: the version of bubblewrap, and what all of its sandboxes have in common. Detected once, with the first
 * sandbox.
 */

import { mkdirSync, openSync, renameSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { buildSeccompFilter, FILTER_ARCHITECTURES, type FilterArchitecture } from "../seccomp/index.ts";
import type { SandboxShape } from "./arguments.ts";
import { type BubblewrapFeatures, bubblewrapFeatures } from "./features.ts";
import { procArguments, syntheticFiles, systemArguments, systemFiles } from "./system-files.ts";

export class Bubblewrap {
  readonly seccomp: Uint8Array | null;
  readonly #path: string;
  readonly #directory: string;
  readonly #files: readonly string[];
  #features: BubblewrapFeatures | null = null;
  #asking: Promise<BubblewrapFeatures> | null = null;
  readonly #system = systemArguments();
  readonly #hostFiles = systemFiles();
  readonly #proc = procArguments();

  /** `directory` keeps the files that every sandbox gets a copy of. */
  constructor(path: string, directory: string) {
    this.#path = path;
    this.#directory = directory;
    this.seccomp = filterOf(process.arch);
    this.#files = writeFiles(directory);
  }

  /** Rejects with `isolation_unavailable`; the next call tries again. */
  async ready(): Promise<BubblewrapFeatures> {
    if (this.#features !== null) return this.#features;
    this.#asking ??= bubblewrapFeatures(this.#path).finally(() => {
      this.#asking = null;
    });
    this.#features = await this.#asking;
    return this.#features;
  }

  /** The parts that every sandbox shares. */
  shape(): Pick<SandboxShape, "features" | "system" | "proc"> {
    if (this.#features === null) throw new SandlotError("internal", { problem: "bubblewrap was not asked yet" });
    return { features: this.#features, system: this.#system, proc: this.#proc };
  }

  /** The contents of files that are the same in every sandbox, opened anew. */
  openFiles(): readonly { readonly path: string; readonly fd: number }[] {
    const sources = [
      ...this.#files.map((path) => ({ path, from: join(this.#directory, basename(path)) })),
      ...this.#hostFiles.map((path) => ({ path, from: path })),
    ];
    return sources.map(({ path, from }) => ({ path, fd: openSync(from, "r") }));
  }
}

function writeFiles(directory: string): readonly string[] {
  const files = syntheticFiles("");
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  for (const [path, content] of Object.entries(files)) {
    const place = join(directory, basename(path));
    writeFileSync(`${place}~${process.pid}`, content, { mode: 0o600 });
    renameSync(`${place}~${process.pid}`, place);
  }
  return Object.keys(files);
}

/** Without a filter the namespaces still isolate, so its absence is reported and not fatal. */
function filterOf(architecture: string): Uint8Array | null {
  return FILTER_ARCHITECTURES.includes(architecture) ? buildSeccompFilter(architecture as FilterArchitecture) : null;
}
