/** `sandlot config import deerflow FILE`: converts another product's configuration, and lists what it drops. */

import { readFile, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { stringify } from "yaml";
import { type Imported, type ImportNote, importDeerFlow } from "../compat/deerflow/import-config.ts";
import { type GatewayConfig, resolveGatewaySettings } from "../config/gateway-settings.ts";
import { resolveSettings } from "../config/resolve-settings.ts";
import { onThisMachine } from "./host-trouble.ts";
import { printJson, type Terminal } from "./terminal.ts";

export interface ImportCommandOptions {
  /** The file to write; absent: standard output. An existing file is not overwritten. */
  readonly output?: string;
  readonly json: boolean;
}

const OUTCOMES: Readonly<Record<ImportNote["outcome"], string>> = {
  changed: "means something else here",
  "no-counterpart": "has no counterpart",
  unknown: "needs a look",
};

export async function importCommand(terminal: Terminal, file: string, options: ImportCommandOptions): Promise<void> {
  const path = resolve(file);
  const text = await readFile(path, "utf8").catch((cause: unknown) => {
    const problem = `the file ${path} cannot be read: ${(cause as Error).message}`;
    throw new SandlotError("config_invalid", { path: "", problem }, { cause });
  });
  const imported = importDeerFlow(text, dirname(path), terminal.environment);
  const problem = problemOf(imported, terminal.environment);
  const yaml = documentOf(imported, path);
  if (options.output !== undefined) await writeNew(resolve(options.output), yaml);
  if (options.json) return printJson(terminal, { ...imported, problem });
  if (options.output === undefined) terminal.out(yaml);
  else terminal.error(`Written to ${resolve(options.output)}\n`);
  for (const { key, outcome, note } of imported.notes) terminal.error(`${key} ${OUTCOMES[outcome]}: ${note}\n`);
  if (problem !== null) terminal.error(`It cannot be used as it is: ${problem}\n`);
}

async function writeNew(path: string, text: string): Promise<void> {
  await onThisMachine("output", path, () => writeFile(path, text, { flag: "wx", mode: 0o600 }));
}

/** What still makes the result unusable, such as an unset variable. */
function problemOf({ config }: Imported, environment: Terminal["environment"]): string | null {
  const { gateway = {}, ...fleet } = config;
  try {
    resolveSettings(fleet, environment);
    resolveGatewaySettings(gateway as GatewayConfig);
    return null;
  } catch (error) {
    if (error instanceof SandlotError) return error.message;
    throw error;
  }
}

function documentOf({ config, notes }: Imported, from: string): string {
  const comments = notes.map(({ key, outcome, note }) => `# ${key} ${OUTCOMES[outcome]}: ${note}\n`);
  const head = `# Made from ${from}\n${comments.join("")}`;
  return `${head}${Object.keys(config).length === 0 ? "{}\n" : stringify(config)}`;
}
