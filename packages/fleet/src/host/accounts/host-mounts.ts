/**
 * Id-mapped mounts on the host, for an engine that resolves the sources of a container's mounts itself.
 *
 *   <fleet>/mapped/<sandbox>/maker     the process that mounted them
 *   <fleet>/mapped/<sandbox>/<n>       a path of the host, with its files as the sandbox's
 *
 * Invariants
 * - They exist only while a container starts. The container then has mounts of its own.
 * - Nothing is removed through a mount: only names without a mount and empty directories are removed.
 * - The next start unmounts what a killed process left. If that process was in another process namespace, its liveness
 *   is unknown: then only mounts older than any possible start are unmounted.
 */

import {
  closeSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { tryJson } from "../../world/try-json.ts";
import type { World } from "../../world/world.ts";
import type { IdMapping, OwnedPath } from "./id-mapping.ts";
import type { Account } from "./sandbox-accounts.ts";
import { SystemCallError, type SystemCalls, systemCalls } from "./system-calls.ts";

const MAKER = "maker";
/** Many times the start of a container. */
const START_MAX_MS = 3_600_000;
const makerSchema = z.object({ bootId: z.string(), pidNamespace: z.string(), pid: z.int(), startTime: z.string() });

export class HostMounts {
  readonly #directory: string;
  readonly #mapping: IdMapping;
  readonly #world: World;

  constructor(root: string, mapping: IdMapping, world: World) {
    this.#directory = join(root, "mapped");
    this.#mapping = mapping;
    this.#world = world;
  }

  /** Mounts these paths for a sandbox that is about to start. Returns the path at which each is then visible. */
  async show(name: string, paths: readonly OwnedPath[], account: Account): Promise<ReadonlyMap<string, string>> {
    const directory = join(this.#directory, name);
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    writeFileSync(join(directory, MAKER), JSON.stringify(this.#world.identity), { mode: 0o600 });
    const shown = new Map<string, string>();
    for (const [index, owned] of paths.entries()) {
      const place = join(directory, String(index));
      const tree = await this.#mapping.copy(owned, account);
      try {
        if (statSync(owned.path).isDirectory()) mkdirSync(place, { mode: 0o700 });
        else writeFileSync(place, "", { mode: 0o600 });
        systemCalls()?.attach(tree, place);
      } finally {
        closeSync(tree);
      }
      shown.set(owned.path, place);
    }
    return shown;
  }

  /** Does nothing where nothing was mounted. */
  hide(name: string): void {
    const directory = join(this.#directory, name);
    const entries = entriesOf(directory);
    // Without the system calls nothing can be unmounted, and a name that may carry a mount must stay.
    const calls = systemCalls();
    if (entries === null || calls === null) return;
    for (const entry of entries.filter((one) => one !== MAKER)) unmount(calls, join(directory, entry));
    if (entries.includes(MAKER)) unlinkSync(join(directory, MAKER));
    rmdirSync(directory);
  }

  /** Unmounts what killed processes left. */
  sweep(): void {
    for (const name of entriesOf(this.#directory) ?? []) if (this.#isAbandoned(name)) this.hide(name);
  }

  #isAbandoned(name: string): boolean {
    let text: string;
    try {
      text = readFileSync(join(this.#directory, name, MAKER), "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      // Its process was killed before writing, or is hiding it right now: in both cases it is empty.
      return entriesOf(join(this.#directory, name))?.length === 0;
    }
    // Half-written: its process was killed.
    const maker = makerSchema.safeParse(tryJson(text));
    if (!maker.success) return true;
    const liveness = this.#world.processLiveness(maker.data);
    return liveness === "dead" || (liveness === "unknown" && this.#isOld(join(this.#directory, name, MAKER)));
  }

  #isOld(path: string): boolean {
    const stats = statSync(path, { throwIfNoEntry: false });
    return stats !== undefined && this.#world.wallMs() - stats.mtimeMs > START_MAX_MS;
  }
}

function unmount(calls: SystemCalls, place: string): void {
  for (;;) {
    try {
      calls.detach(place);
    } catch (error) {
      // EINVAL: nothing is mounted there any more.
      if (error instanceof SystemCallError && (error.code === "EINVAL" || error.code === "ENOENT")) break;
      throw error;
    }
  }
  const stats = statSync(place, { throwIfNoEntry: false });
  if (stats?.isDirectory() === true) rmdirSync(place);
  else if (stats !== undefined) unlinkSync(place);
}

function entriesOf(directory: string): readonly string[] | null {
  try {
    return readdirSync(directory);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}
