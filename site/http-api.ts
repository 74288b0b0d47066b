/**
 * Writes site/generated/http-api.md and openapi.json: the routes of a gateway, from the document that a running one serves.
 * Run with `node --conditions=sandlot-source site/http-api.ts`. The gateway listens on loopback, over a fleet in memory.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openFleet } from "sandlot";
import { readOperatorKey, startGateway } from "sandlot/gateway";
import { systemWorld } from "../packages/fleet/src/world/system-world.ts";

interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
}

interface Operation {
  readonly operationId?: string;
  readonly summary?: string;
  readonly description?: string;
  readonly tags?: readonly string[];
  readonly parameters?: readonly {
    name: string;
    in: string;
    required?: boolean;
    description?: string;
    schema?: Schema;
  }[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema?: Schema }>> };
  readonly responses: Readonly<
    Record<
      string,
      { readonly description?: string; readonly content?: Readonly<Record<string, { readonly schema?: Schema }>> }
    >
  >;
}

interface OpenApi {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
}

const GENERATED = join(import.meta.dirname, "generated");
const document = await served();
mkdirSync(join(GENERATED, "public"), { recursive: true });
writeFileSync(join(GENERATED, "public", "openapi.json"), JSON.stringify(document, null, 2));
writeFileSync(join(GENERATED, "http-api.md"), render(document));
console.log(`wrote the HTTP API: ${operations(document).length} operations`);

async function served(): Promise<OpenApi> {
  const home = mkdtempSync(join(tmpdir(), "sandlot-site-"));
  const fleet = await openFleet({ home, backend: "memory", store: { type: "memory" } });
  try {
    const gateway = await startGateway({ fleet, home, world: systemWorld(), settings: { port: 0 } });
    try {
      const headers = { authorization: `Bearer ${await readOperatorKey(home)}` };
      const response = await fetch(`${gateway.url}/openapi.json`, { headers });
      if (!response.ok) throw new Error(`the gateway answered ${response.status}`);
      return (await response.json()) as OpenApi;
    } finally {
      await gateway.close();
    }
  } finally {
    await fleet.close({ destroy: true });
    rmSync(home, { recursive: true, force: true });
  }
}

function operations({ paths }: OpenApi) {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  );
}

function render(api: OpenApi): string {
  const groups = Map.groupBy(operations(api), ({ path }) => groupOf(path));
  const sections = [...groups].map(([name, list]) => [`## ${name}`, ...list.map(section)].join("\n\n"));
  return `# HTTP API

Every route of a gateway, as the gateway itself describes it. [The guide](../../docs/guides/http.md) shows the routes in use, and
[errors.md](../../docs/errors.md) has the codes that any of them may answer with. The same as a document for programs:
<a href="/openapi.json" target="_self">openapi.json</a>. A running gateway serves both, at \`/openapi.json\` and \`/docs\`.

${sections.join("\n\n")}
`;
}

function groupOf(path: string): string {
  if (path.startsWith("/api/")) return "In DeerFlow's spelling";
  if (path.startsWith("/mcp/")) return "MCP";
  const [, part] = /^\/v1\/threads\/\{thread\}\/([a-z]+)/.exec(path) ?? [];
  const names: Readonly<Record<string, string>> = {
    exec: "execs",
    terminal: "terminals",
    explain: "threads",
    stop: "threads",
    branch: "threads",
    usage: "processes",
  };
  if (part !== undefined) return titled(names[part] ?? part);
  const [, top] = /^\/v1\/([a-z]+)/.exec(path) ?? [];
  return top === undefined ? "The gateway" : titled(top === "key" ? "keys" : top);
}

function titled(name: string): string {
  return name === "aio" ? "AIO URLs" : `${name[0]?.toUpperCase()}${name.slice(1)}`;
}

type Entry = ReturnType<typeof operations>[number];

function section({ path, method, operation }: Entry): string {
  const parameters = (operation.parameters ?? []).map(
    ({ name, in: place, required, description, schema }) =>
      `- \`${name}\` in ${place === "path" ? "the path" : place}${facts(schema, required === true)}${sentence(description ?? schema?.description)}`,
  );
  const bodies = Object.entries(operation.requestBody?.content ?? {}).map(([type, { schema }]) =>
    [`Takes \`${type}\`${fields(schema).length > 0 ? ":" : "."}`, ...fields(schema)].join("\n\n"),
  );
  const answers = Object.entries(operation.responses)
    .filter(([status]) => Number(status) < 400)
    .map(([status, { content = {} }]) => {
      const types = Object.entries(content);
      const shapes = types.flatMap(([, { schema }]) => fields(schema));
      const named = types.map(([type]) => `\`${type}\``).join(" or ");
      return [
        `Answers ${status}${named === "" ? "" : ` with ${named}`}${shapes.length > 0 ? ":" : "."}`,
        ...shapes,
      ].join("\n\n");
    });
  const told = [operation.summary, operation.description]
    .filter((text) => text !== undefined)
    .map((text) => safe(text ?? ""));
  return [`### \`${method} ${path}\``, ...told, parameters.join("\n"), ...bodies, ...answers]
    .filter((part) => part !== "")
    .join("\n\n");
}

function fields(schema: Schema | undefined): string[] {
  const resolved = objectOf(schema);
  const entries = Object.entries(resolved?.properties ?? {});
  if (entries.length === 0) return [];
  const lines = entries.map(([name, value]) => {
    const required = resolved?.required?.includes(name) === true;
    return `- \`${name}\`${facts(value, required)}${sentence(resolve(value)?.description)}`;
  });
  return [lines.join("\n")];
}

function facts(schema: Schema | undefined, required: boolean): string {
  const type = typeOf(schema);
  const parts = [type, required ? "" : "optional"].filter((part) => part !== "");
  return parts.length === 0 ? "." : ` (${parts.join(", ")}).`;
}

function typeOf(schema: Schema | undefined): string {
  const resolved = resolve(schema);
  if (resolved === undefined) return "";
  if (resolved.const !== undefined) return `\`${JSON.stringify(resolved.const)}\``;
  if (resolved.enum !== undefined) return resolved.enum.map((value) => `\`${value}\``).join(" or ");
  const several = resolved.anyOf ?? resolved.oneOf;
  if (several !== undefined) return [...new Set(several.map(typeOf))].join(" or ");
  if (resolved.type === "array") return `list of ${typeOf(resolved.items)}`;
  return [resolved.type ?? ""].flat().join(" or ");
}

function resolve(schema: Schema | undefined): Schema | undefined {
  if (schema?.$ref === undefined) return schema;
  return document.components.schemas[schema.$ref.split("/").at(-1) ?? ""];
}

/** The object that a body is; where it may also be left out, the object that it may be. */
function objectOf(schema: Schema | undefined): Schema | undefined {
  const resolved = resolve(schema);
  if (resolved?.properties !== undefined) return resolved;
  return (resolved?.anyOf ?? resolved?.oneOf)?.map(objectOf).find((one) => one?.properties !== undefined);
}

function sentence(text: string | undefined): string {
  return text === undefined ? "" : ` ${safe(text)}`;
}

/** Text of the document as Markdown that VitePress takes for text, also where it has braces or angle brackets. */
function safe(text: string): string {
  return text.replaceAll("<", "&lt;").replaceAll("{{", "&#123;&#123;").replaceAll("\n", " ");
}
