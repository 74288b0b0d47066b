/**
 * Parses a configuration file: YAML, which includes JSON. Nothing in it is executed.
 *
 * An error names the line and column in the file, also for a value that only the schema refuses.
 */

import {
  type Document,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  parseDocument,
  type YAMLParseError,
} from "yaml";
import type { FleetConfig } from "./fleet-config.ts";
import { type GatewayConfig, resolveGatewaySettings } from "./gateway-settings.ts";
import type { LoadedConfig } from "./load-config.ts";
import { type Problem, problemsFrom, refuse, UNKNOWN_KEY } from "./problems.ts";
import { resolveSettings } from "./resolve-settings.ts";
import type { Environment } from "./variables.ts";

/** The file's content. Refuses with `config_invalid`, with the place in the file. */
export function parseConfig(file: string, text: string, environment: Environment): LoadedConfig {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, uniqueKeys: true });
  refuse(
    document.errors.map((broken) => brokenYaml(broken, lines)),
    file,
  );
  const { gateway = {}, config } = sections(document.toJS() ?? {});
  const problems = [
    ...problemsFrom(() => resolveSettings(config, environment)),
    ...problemsFrom(() => resolveGatewaySettings(gateway as GatewayConfig)),
  ];
  refuse(
    problems.map((problem) => placed(problem, document, lines)),
    file,
  );
  return { file, config: config as FleetConfig, gateway: gateway as GatewayConfig };
}

/** The parts for the fleet and for the gateway. `$schema` is for editors and is ignored. */
function sections(whole: unknown): { readonly config: unknown; readonly gateway?: unknown } {
  if (whole === null || typeof whole !== "object" || Array.isArray(whole)) return { config: whole };
  const { $schema: _, gateway, ...config } = whole as Readonly<Record<string, unknown>>;
  return gateway === undefined ? { config } : { config, gateway };
}

function brokenYaml({ message, pos }: YAMLParseError, lines: LineCounter): Problem {
  const { line, col: column } = lines.linePos(pos[0]);
  // The first line is the message; the others show the place.
  const [what = message] = message.split("\n");
  return { path: "", problem: what.replace(/ at line \d+, column \d+:?$/, ""), line, column };
}

/** The same problem, with its place in the file. */
function placed(problem: Problem, document: Document, lines: LineCounter): Problem {
  const node = deepest(document.contents, problem.path, problem.problem.startsWith(UNKNOWN_KEY));
  if (node?.range === undefined || node.range === null) return problem;
  const { line, col: column } = lines.linePos(node.range[0]);
  return { ...problem, line, column };
}

/**
 * The node at a path such as `blueprints.python.mounts[0].hostPath`, or its deepest existing parent. With `isKey` the
 * key of that value, where it has one.
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
