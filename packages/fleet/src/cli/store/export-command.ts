/**
 * `sandlot store export`: writes the store to a new file that only its owner can read, or to standard output.
 *
 * A file that could not be finished is removed. It would be refused anyway: its last line is missing.
 */

import { open, rm } from "node:fs/promises";
import { resolve } from "node:path";
import { SandlotError } from "@sandlot/contract";
import type { Settings } from "../../config/settings.ts";
import { lineSink } from "../../store/transfer/export-file.ts";
import { type ExportRequest, type ExportSink, exportStore } from "../../store/transfer/export-store.ts";
import type { World } from "../../world/world.ts";
import { onThisMachine } from "../host-trouble.ts";
import { withProgress } from "../progress.ts";
import { printJson, type Terminal } from "../terminal.ts";
import { findStore, withStore } from "./opened-store.ts";

export interface ExportCommandOptions {
  readonly config?: string;
  readonly whileRunning?: boolean;
  readonly json: boolean;
}

export async function exportCommand(
  terminal: Terminal,
  file: string | undefined,
  options: ExportCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const { whileRunning = false, json } = options;
  if (json && file === undefined) {
    const problem = "with --json name a file for the export";
    throw new SandlotError("invalid_request", { field: "command line", problem });
  }
  const found = await findStore(terminal, options.config);
  const path = file === undefined ? null : resolve(file);
  const rows = await withProgress(terminal, "Exporting", () =>
    withStore(found, false, ({ store, world, description, settings }) => {
      const lifetimeMs = settings.sessionLifetimeMs;
      const engineOf = engineNames(settings, world);
      const request = { world, store, description, lifetimeMs, isWhole: !whileRunning, engineOf, signal };
      return path === null ? exportStore(request, toStandardOutput(terminal)) : exportTo(path, request);
    }),
  );
  if (json) return printJson(terminal, { file: path, rows, isWhole: !whileRunning });
  const where = path === null ? "standard output" : path;
  terminal.error(
    `Wrote ${rows} rows to ${where}. It has the keys to every sandbox: keep it secret, and remove it soon.\n`,
  );
  terminal.error(
    whileRunning
      ? "The sandboxes are not in it: instances were free to change them. A store made from it finds them by recovery.\n"
      : "The store is closed: no instance can use it until `sandlot store resume`.\n",
  );
}

/** The backend is opened only for records that an older version wrote without their engine. */
function engineNames(settings: Settings, world: World): ExportRequest["engineOf"] {
  let opened: Promise<string> | null = null;
  return async ({ backend }) => {
    if (backend !== settings.backend) return null;
    opened ??= engineIdOf(settings, world);
    return opened;
  };
}

async function engineIdOf(settings: Settings, world: World): Promise<string> {
  const { openBackend } = await import("../../open-fleet.ts");
  const backend = await openBackend(settings, world);
  try {
    return backend.engineId;
  } finally {
    await backend.close();
  }
}

async function exportTo(path: string, request: ExportRequest): Promise<number> {
  const handle = await onThisMachine("file", path, () => open(path, "wx", 0o600));
  try {
    const write = (text: string) => onThisMachine("file", path, () => handle.writeFile(text));
    const lines = lineSink(write);
    const sink: ExportSink = {
      ...lines,
      async end() {
        await lines.end();
        await onThisMachine("file", path, () => handle.sync());
      },
    };
    return await exportStore(request, sink);
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    await handle.close();
  }
}

function toStandardOutput(terminal: Terminal): ExportSink {
  return lineSink(async (text) => {
    if (await terminal.write("stdout", Buffer.from(text))) return;
    throw new SandlotError("invalid_request", { field: "standard output", problem: "its reader has stopped" });
  });
}
