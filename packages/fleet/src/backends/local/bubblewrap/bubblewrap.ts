/**
 * The engine: the version of bubblewrap, and what all of its sandboxes have in common. Detected once, with the first
 * sandbox.
 */

import { mkdirSync, openSync, renameSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { KEPT_HOME, SandlotError, TEMPORARY_HOME } from "@sandlot/contract";
import { buildSeccompFilter, FILTER_ARCHITECTURES, type FilterArchitecture } from "../seccomp/index.ts";
import type { SandboxShape } from "./arguments.ts";
import { type BubblewrapFeatures, bubblewrapFeatures } from "./features.ts";
import { PASSWD, passwdText, procArguments, syntheticFiles, systemArguments, systemFiles } from "./system-files.ts";

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

  /** The contents of files that are the same in every sandbox with this home, opened anew. */
  openFiles(home: string): readonly { readonly path: string; readonly fd: number }[] {
    const sources = [
      { path: PASSWD, from: join(this.#directory, passwdName(home)) },
      ...this.#files.map((path) => ({ path, from: join(this.#directory, basename(path)) })),
      ...this.#hostFiles.map((path) => ({ path, from: path })),
    ];
    return sources.map(({ path, from }) => ({ path, fd: openSync(from, "r") }));
  }
}

function writeFiles(directory: string): readonly string[] {
  const files = syntheticFiles("");
  const accounts = [KEPT_HOME, TEMPORARY_HOME].map((home) => [passwdName(home), passwdText(home)] as const);
  const named = Object.entries(files).map(([path, content]) => [basename(path), content] as const);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  for (const [name, content] of [...accounts, ...named]) {
    const place = join(directory, name);
    writeFileSync(`${place}~${process.pid}`, content, { mode: 0o600 });
    renameSync(`${place}~${process.pid}`, place);
  }
  return Object.keys(files);
}

/** An earlier version's process keeps writing and reading `passwd`. */
function passwdName(home: string): string {
  return home === TEMPORARY_HOME ? "passwd-temporary" : "passwd-kept";
}

/** Without a filter the namespaces still isolate, so its absence is reported and not fatal. */
function filterOf(architecture: string): Uint8Array | null {
  return FILTER_ARCHITECTURES.includes(architecture) ? buildSeccompFilter(architecture as FilterArchitecture) : null;
}
