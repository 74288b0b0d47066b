/**
 * `sandlot store import FILE`: checks the whole file, then fills a new store from it. A broken import leaves a store
 * that serves no instance; the same command again finishes it.
 */

import { createReadStream } from "node:fs";
import { resolve } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { BadExport, checkFile, type ExportFile, rowsOf } from "../../store/transfer/export-file.ts";
import { importStore } from "../../store/transfer/import-store.ts";
import { withProgress } from "../progress.ts";
import { printJson, type Terminal } from "../terminal.ts";
import { type ConfiguredStore, findStore, withStore } from "./opened-store.ts";

export interface ImportCommandOptions {
  readonly config?: string;
  /** A configuration file, or `sqlite:PATH`. */
  readonly to?: string;
  readonly json: boolean;
}

export async function importCommand(
  terminal: Terminal,
  file: string,
  options: ImportCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const path = resolve(file);
  const found = await findTarget(terminal, options);
  const { header, counts, withoutEngine } = await withProgress(terminal, "Checking the file", () => checked(path));
  const work = () =>
    withStore(found, true, ({ store, world, description }) => {
      const source = { header, withoutEngine, rows: rowsOf(chunksOf(path)), file: path };
      return importStore({ store, importer: world.randomHex(8), description, ...source, signal });
    });
  const leftOut = await withProgress(terminal, "Importing", work);
  const { isWhole } = header;
  const { record: sandboxes, tombstone: tombstones } = counts;
  if (options.json) return printJson(terminal, { store: found.description, sandboxes, tombstones, leftOut, isWhole });
  terminal.out(`Imported ${sandboxes} sandboxes and ${tombstones} ended ones into ${found.description}.\n`);
  if (leftOut > 0)
    terminal.error(`${leftOut} API keys and links were left out: this store keeps them in files. Make new ones.\n`);
  terminal.error(
    isWhole
      ? "Set this store in the configuration of every instance, then start them.\n"
      : "The export had no sandboxes: the first instance finds them by recovery, after one session lifetime.\n",
  );
}

function findTarget(terminal: Terminal, { config, to }: ImportCommandOptions): Promise<ConfiguredStore> {
  const [, path] = /^sqlite:(.+)$/.exec(to ?? "") ?? [];
  if (path !== undefined) return findStore(terminal, config, { store: { type: "sqlite", path: resolve(path) } });
  return findStore(terminal, to ?? config);
}

async function checked(path: string): Promise<ExportFile> {
  try {
    return await checkFile(chunksOf(path));
  } catch (error) {
    const problem = error instanceof BadExport ? error.message : `it cannot be read (${(error as Error).message})`;
    throw new SandlotError("export_invalid", { file: path, problem }, { cause: error });
  }
}

/** Opens the file when it is read, so that a file that is never read cannot fail. */
async function* chunksOf(path: string): AsyncGenerator<Buffer> {
  yield* createReadStream(path);
}
