/**
 * Reading a configuration file: YAML, of which JSON is a part. Nothing in it is executed.
 *
 * An error says in which line and column of the file the trouble is, also when the trouble is a value that only the
 * schema refuses.
 */

import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { isSandlotError, SandlotError } from "@sandlot/contract";
import { type Document, isMap, isNode, isScalar, isSeq, LineCounter, type Node, parseDocument } from "yaml";
import { type GatewayConfig, resolveGatewaySettings } from "../gateway/settings.ts";
import { UNKNOWN_KEY } from "./problems.ts";
import { resolveSettings } from "./resolve-settings.ts";
import type { FleetConfig } from "./schema.ts";
import type { Environment } from "./variables.ts";

/** Looked for in the fleet's home when no file is named. */
const CONFIG_FILE_NAME = "sandlot.yaml";

export interface LoadedConfig {
  /** The file it came from; `null` for the defaults. */
  readonly file: string | null;
  readonly config: FleetConfig;
  /** The section `gateway` of the file. */
  readonly gateway: GatewayConfig;
}

/** The file that is named, or `$SANDLOT_CONFIG`, or `sandlot.yaml` in `$SANDLOT_HOME`; without any, the defaults. */
export async function loadConfig(named: string | undefined, environment: Environment): Promise<LoadedConfig> {
  // An empty variable is an unset one, as shells have it.
  const file = named ?? (environment.SANDLOT_CONFIG || undefined);
  if (file !== undefined) return readConfig(resolve(file), environment);
  const { home } = resolveSettings({}, environment);
  const inHome = resolve(home, CONFIG_FILE_NAME);
  try {
    return await readConfig(inHome, environment);
  } catch (error) {
    if (isMissing(error)) return { file: null, config: {}, gateway: {} };
    throw error;
  }
}

async function readConfig(file: string, environment: Environment): Promise<LoadedConfig> {
  const text = await readFile(file, "utf8").catch((cause: unknown) => {
    throw fileProblem(`the file ${file} cannot be read: ${(cause as Error).message}`, cause);
  });
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, uniqueKeys: true });
  const [broken] = document.errors;
  if (broken !== undefined) throw fileProblem(`${file}: ${broken.message.replace(/\s+/g, " ").trim()}`, broken);
  const { gateway = {}, config } = sections(document.toJS() ?? {});
  try {
    resolveSettings(config, environment);
    resolveGatewaySettings(gateway as GatewayConfig);
  } catch (error) {
    throw placed(error, file, document, lines);
  }
  return { file, config: config as FleetConfig, gateway: gateway as GatewayConfig };
}

/** What concerns the fleet, and what concerns the gateway. `$schema` is for editors and says nothing to us. */
function sections(whole: unknown): { readonly config: unknown; readonly gateway?: unknown } {
  if (whole === null || typeof whole !== "object" || Array.isArray(whole)) return { config: whole };
  const { $schema: _, gateway, ...config } = whole as Readonly<Record<string, unknown>>;
  return gateway === undefined ? { config } : { config, gateway };
}

/** The same refusal, with where in the file it is about. */
function placed(error: unknown, file: string, document: Document, lines: LineCounter): unknown {
  if (!isSandlotError(error, "config_invalid")) return error;
  const { path, problem, suggestion } = error.details;
  const node = deepest(document.contents, path, problem.startsWith(UNKNOWN_KEY));
  if (node?.range === undefined || node.range === null) return error;
  const { line, col } = lines.linePos(node.range[0]);
  const details = { path, problem: `${problem} (${file}, line ${line}, column ${col})` };
  return new SandlotError("config_invalid", suggestion === undefined ? details : { ...details, suggestion });
}

/**
 * The node a path such as `blueprints.python.mounts[0].hostPath` leads to, or the last one on the way that exists. With
 * `isKey` the key of that value, where it has one.
 */
function deepest(root: unknown, path: string, isKey: boolean): Node | undefined {
  let node = isNode(root) ? root : undefined;
  let key: unknown;
  for (const [, quoted, index, word] of path.matchAll(/\["([^"]+)"\]|\[(\d+)\]|([^.[\]]+)/g)) {
    let next: unknown;
    const name = quoted ?? word ?? index;
    if (isMap(node)) {
      next = node.get(name, true);
      key = node.items.find((pair) => isScalar(pair.key) && String(pair.key.value) === name)?.key;
    } else if (isSeq(node)) next = node.get(Number(index), true);
    if (!isNode(next)) break;
    node = next;
  }
  return isKey && isNode(key) ? key : node;
}

function isMissing(error: unknown): boolean {
  return isSandlotError(error) && (error.cause as NodeJS.ErrnoException | undefined)?.code === "ENOENT";
}

function fileProblem(problem: string, cause: unknown): SandlotError {
  return new SandlotError("config_invalid", { path: "", problem }, { cause });
}
