/**
 * Fuzzes a gateway: requests generated from its own OpenAPI document, valid and spoiled, of several users at once.
 *
 *   npm run fuzz -- --requests 20000 --seed 7 --backend memory
 *   npm run fuzz -- --daemon --cases 20000 --seed 7      a hostile daemon instead, see tests/hostile-daemon
 *
 * Fails on any 5xx but `capability_missing` and `wait_timeout`, on a crash, on a request without a response, when less
 * than 40 % pass validation, and when anything is left behind. Prints the status counts of every route.
 */

import { parseArgs } from "node:util";
import { Chance, generate, type Schema, spoil, wrongText } from "./generate.ts";
import { openGatewayStage } from "./stage.ts";

const { values } = parseArgs({
  options: {
    requests: { type: "string", default: "20000" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    backend: { type: "string", default: "memory" },
    concurrency: { type: "string", default: "24" },
    /** The time limit of a run. */
    seconds: { type: "string", default: "900" },
    daemon: { type: "boolean", default: false },
    cases: { type: "string", default: "20000" },
  },
});
if (values.daemon) {
  const { lines, runHostile } = await import("../hostile-daemon/run.ts");
  const report = await runHostile({ cases: Number(values.cases), seed: Number(values.seed) });
  for (const line of lines(report)) console.log(line);
  for (const problem of report.problems) console.error(problem);
  console.log(report.problems.length === 0 ? "fuzz: nothing found" : `fuzz: ${report.problems.length} problems`);
  process.exit(report.problems.length === 0 ? 0 : 1);
}
const total = Number(values.requests);
const seed = Number(values.seed);
const deadline = Date.now() + Number(values.seconds) * 1_000;
/** Codes of requests that failed validation or authorisation. */
const NOT_VALID = new Set([
  "invalid_request",
  "invalid_thread_id",
  "invalid_user_id",
  "unauthorized",
  "route_not_found",
  "unsupported_media",
  "payload_too_large",
  "forbidden",
]);

/** Statuses above 499 that are no failure: unsupported by this backend, and a wait that was requested to be short. */
const EXPECTED = new Set(["capability_missing", "wait_timeout"]);

interface Operation {
  readonly method: string;
  readonly path: string;
  readonly parameters: readonly {
    readonly name: string;
    readonly in: string;
    readonly required?: boolean;
    readonly schema: Schema;
  }[];
  readonly body: Schema | null;
}

const stage = await openGatewayStage(
  { backend: values.backend as "memory", store: { type: "memory" }, limits: { max: 5_000 } },
  { drainMs: 2_000 },
);
const { keys, url } = stage.gateway;
const made = [
  (await keys.create({ scope: "user", user: "fuzz-a" })).key,
  (await keys.create({ scope: "user", user: "fuzz-b" })).key,
  (await keys.create({ scope: "operator" })).key,
];
const document = (await (
  await fetch(`${url}/openapi.json`, { headers: { "x-api-key": made[2] as string } })
).json()) as {
  readonly paths: Record<
    string,
    Record<
      string,
      { parameters?: Operation["parameters"]; requestBody?: { content: Record<string, { schema: Schema }> } }
    >
  >;
  readonly components: { readonly schemas: Record<string, Schema> };
};
const operations: Operation[] = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, { parameters = [], requestBody }]) => ({
    method: method.toUpperCase(),
    path,
    parameters,
    body: requestBody?.content["application/json"]?.schema ?? null,
  })),
);

const counts = new Map<string, Map<number, number>>();
const problems: string[] = [];
let sent = 0;
let valid = 0;
let cut = 0;

function note(operation: string, status: number): void {
  const statuses = counts.get(operation) ?? new Map<number, number>();
  statuses.set(status, (statuses.get(status) ?? 0) + 1);
  counts.set(operation, statuses);
}

/** One request, drawn from its own number, so that each can be repeated. */
async function once(number: number): Promise<void> {
  const chance = new Chance(seed * 1_000_003 + number);
  const operation = chance.pick(operations);
  const name = `${operation.method} ${operation.path}`;
  const spoilt = chance.chance(0.35);
  const query = new URLSearchParams();
  let path = operation.path;
  for (const parameter of operation.parameters) {
    const wrong = spoilt && chance.chance(0.3);
    const drawn = generate(chance, parameter.schema, document.components.schemas, parameter.name);
    const text = wrong ? wrongText(chance) : String(drawn);
    if (parameter.in === "path")
      path = path.replace(`{${parameter.name}}`, wrong || parameter.name === "*" ? text : encodeURIComponent(text));
    else if (parameter.in === "query" && (parameter.required === true || chance.chance(0.3)))
      query.set(parameter.name, text);
  }
  const headers: Record<string, string> = {
    authorization: `Bearer ${spoilt && chance.chance(0.1) ? "slk_no" : pickKey(chance, path)}`,
  };
  if (chance.chance(0.1)) headers.accept = "text/event-stream";
  if (chance.chance(0.05)) headers["if-match"] = chance.pick(['"x"', "*", "x", '"%"']);
  if (chance.chance(0.05)) headers["if-none-match"] = chance.pick(["*", '"x"']);
  if (chance.chance(0.05)) headers.range = chance.pick(["bytes=0-3", "bytes=-5", "bytes=9-1", "x"]);
  const stop = new AbortController();
  // Streams do not end by themselves.
  const timer = setTimeout(() => stop.abort(), 1_500);
  try {
    const text = query.toString();
    const body = bodyOf(chance, operation, spoilt, headers);
    const response = await fetch(`${url}${path}${text === "" ? "" : `?${text}`}`, {
      method: operation.method,
      headers,
      signal: stop.signal,
      ...(body === null ? {} : { body }),
    });
    note(name, response.status);
    const isStream = (response.headers.get("content-type") ?? "").includes("event-stream");
    const answer = isStream ? "" : await response.text().catch(() => "");
    if (isStream) stop.abort();
    const code = response.status < 400 ? "" : codeOf(answer);
    if (!NOT_VALID.has(code)) valid += 1;
    if (response.status >= 500 && !EXPECTED.has(code))
      problems.push(`request ${number}: ${name} answered ${response.status} ${answer.slice(0, 300)}`);
    if (response.status >= 400 && code === "")
      problems.push(`request ${number}: ${name} answered ${response.status} without a code`);
  } catch (error) {
    if (stop.signal.aborted) {
      // It may still wait, or not have been read yet: whether it passed validation is unknown.
      note(name, 0);
      cut += 1;
    } else
      problems.push(
        `request ${number}: ${name} got no answer: ${error instanceof Error ? `${error.message} ${String(error.cause)}` : error}`,
      );
  } finally {
    clearTimeout(timer);
  }
}

function pickKey(chance: Chance, path: string): string {
  const operators = /^\/(v1\/(sandboxes|events|audit)|metrics)/.test(path);
  return made[operators && chance.chance(0.9) ? 2 : chance.below(3)] as string;
}

function bodyOf(
  chance: Chance,
  { method, path, body }: Operation,
  spoilt: boolean,
  headers: Record<string, string>,
): string | FormData | null {
  if (method === "GET" || method === "DELETE") return null;
  if (path.endsWith("/uploads")) {
    const form = new FormData();
    for (let count = chance.below(4); count >= 0; count -= 1)
      form.append(
        chance.pick(["files", "other"]),
        new Blob(["x".repeat(chance.below(5_000))]),
        spoilt ? wrongText(chance) : `file-${chance.below(4)}`,
      );
    return form;
  }
  if (body === null) return chance.chance(0.8) ? "some bytes" : "";
  headers["content-type"] =
    spoilt && chance.chance(0.1) ? chance.pick(["text/plain", "application/xml", "x"]) : "application/json";
  const drawn = generate(chance, body, document.components.schemas);
  if (!spoilt) return JSON.stringify(drawn);
  if (chance.chance(0.1)) return chance.pick(["{", "", "[", "nul", '{"a":', "\0"]);
  return JSON.stringify(spoil(chance, drawn));
}

function codeOf(answer: string): string {
  try {
    return (JSON.parse(answer) as { error?: { code?: string } }).error?.code ?? "";
  } catch {
    return "";
  }
}

const started = Date.now();
async function worker(): Promise<void> {
  while (sent < total && Date.now() < deadline && problems.length < 20) await once(sent++);
}
await Promise.all(Array.from({ length: Number(values.concurrency) }, worker));
const health = await fetch(`${url}/healthz`).then(
  ({ status }) => status,
  () => 0,
);
if (health !== 200) problems.push(`the gateway is no longer well: ${health}`);
problems.push(...(await stage.done()));

for (const [name, statuses] of [...counts].sort(([a], [b]) => (a < b ? -1 : 1))) {
  const line = [...statuses]
    .sort(([a], [b]) => a - b)
    .map(([status, count]) => `${status === 0 ? "cut" : status}:${count}`);
  console.log(`${name.padEnd(64)} ${line.join("  ")}`);
}
const share = valid / Math.max(1, sent);
if (sent < total) problems.push(`only ${sent} of ${total} requests were sent`);
if (share < 0.4) problems.push(`only ${(share * 100).toFixed(1)} % passed validation`);
console.log(
  `seed ${seed}: ${sent} requests in ${((Date.now() - started) / 1_000).toFixed(1)} s, ${(share * 100).toFixed(1)} % passed validation, ` +
    `${cut} given up before an answer`,
);
for (const problem of problems) console.error(problem);
console.log(problems.length === 0 ? "fuzz: nothing found" : `fuzz: ${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);
