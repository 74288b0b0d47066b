/**
 * Every field of every request of the AIO API, as in its description: required or not, nullable or not, and its type. A
 * wrong field gives 422 with its name.
 */

import { beforeAll, expect, it } from "vitest";
import { AioClient, SCHEMAS } from "./aio-client.ts";
import { daemonFile, startDaemon } from "./start-daemon.ts";

beforeAll(daemonFile, 60_000);

/** `!`: required. `?`: nullable. */
const REQUESTS: Readonly<Record<string, string>> = {
  "/v1/shell/exec":
    "id: string?; exec_dir: string?; command!: string; async_mode: boolean; timeout: number?; strict: boolean?; no_change_timeout: integer?; hard_timeout: number?; preserve_symlinks: boolean?; truncate: boolean",
  "/v1/shell/view": "id!: string",
  "/v1/shell/wait": "id!: string; seconds: integer?; max_wait_seconds: integer?",
  "/v1/shell/write": "id!: string; input!: string; press_enter!: boolean",
  "/v1/shell/kill": "id!: string",
  "/v1/shell/sessions/create": "exec_dir: string?; no_change_timeout: integer?; preserve_symlinks: boolean?",
  "/v1/shell/sessions/update": "id!: string; no_change_timeout: integer?",
  "/v1/bash/exec":
    "session_id: string?; command!: string; exec_dir: string?; env: map?; async_mode: boolean; timeout: number?; hard_timeout: number?; max_output_length: integer",
  "/v1/bash/output":
    "session_id!: string; command_id: string?; offset: integer; stderr_offset: integer; wait: boolean; wait_timeout: number",
  "/v1/bash/write": "session_id!: string; command_id: string?; input!: string",
  "/v1/bash/kill": "session_id!: string; signal: string",
  "/v1/bash/sessions/create": "session_id: string?; exec_dir: string?; snapshot_path: string?",
  "/v1/file/read": "file!: string; start_line: integer?; end_line: integer?; sudo: boolean?",
  "/v1/file/write":
    "file!: string; content!: string; encoding: enum?; append: boolean?; leading_newline: boolean?; trailing_newline: boolean?; sudo: boolean?",
  "/v1/file/replace": "file!: string; old_str!: string; new_str!: string; sudo: boolean?",
  "/v1/file/search": "file!: string; regex!: string; sudo: boolean?",
  "/v1/file/find": "path!: string; glob!: string",
  "/v1/file/grep":
    "path!: string; pattern!: string; include: list?; exclude: list?; case_insensitive: boolean?; fixed_strings: boolean?; context_before: integer?; context_after: integer?; max_results: integer?; max_file_size: string?; multiline: boolean?; offset: integer?; type: string?; recursive: boolean?",
  "/v1/file/glob":
    "path!: string; pattern!: string; exclude: list?; include_hidden: boolean?; files_only: boolean?; include_metadata: boolean?; max_results: integer?; sort_by: string?; sort_desc: boolean?",
  "/v1/file/list":
    "path!: string; recursive: boolean?; show_hidden: boolean?; file_types: list?; max_depth: integer?; include_size: boolean?; include_permissions: boolean?; sort_by: string?; sort_desc: boolean?",
  "/v1/file/str_replace_editor":
    "command!: enum; path!: string; file_text: string?; old_str: string?; new_str: string?; insert_line: integer?; view_range: list?; replace_mode: enum?; page_range: list?; sheet_name: string?; row_range: list?; slide_range: list?; enable_metadata: boolean?",
};

/** Values that no field of the kind accepts. */
const WRONG: Readonly<Record<string, readonly unknown[]>> = {
  string: [7, true, ["x"], {}],
  boolean: ["maybe", 2, ["x"], {}],
  number: ["x", "", ["x"], {}],
  integer: ["x", 1.5, ["x"], {}],
  enum: ["nothing", 7, {}],
  list: ["x", 7, [{}], {}],
  map: ["x", 7, ["x"], { A: 7 }],
};

/** Unusual values that each kind accepts. */
const TAKEN: Readonly<Record<string, readonly unknown[]>> = {
  boolean: ["true", 0],
  number: ["0.5", 1],
  integer: ["1", 1.0],
};

/** A path below a file: no operation can create it. */
const RIGHT: Readonly<Record<string, unknown>> = { string: "/dev/null/nowhere", boolean: true, enum: "view" };

interface Field {
  readonly name: string;
  readonly kind: string;
  readonly required: boolean;
  readonly nullable: boolean;
}

function fieldsOf(text: string): readonly Field[] {
  return text.split("; ").map((field) => {
    const [, name = "", required, kind = "", nullable] = /^(\w+)(!?): (\w+)(\??)$/.exec(field) ?? [];
    return { name, kind, required: required === "!", nullable: nullable === "?" };
  });
}

it("every field of every request", { timeout: 120_000 }, async () => {
  const daemon = await startDaemon();
  const client = new AioClient(daemon.socketPath, { "x-aio-api-key": daemon.config.token });
  for (const [path, text] of Object.entries(REQUESTS)) await checkRequest(client, path, fieldsOf(text));
});

async function checkRequest(client: AioClient, path: string, fields: readonly Field[]): Promise<void> {
  const least = Object.fromEntries(
    fields.filter(({ required }) => required).map(({ name, kind }) => [name, RIGHT[kind]]),
  );
  /** The reported fields; or the status, when none is reported. */
  const wrong = async (body: object): Promise<readonly string[]> => {
    const answer = await client.ask("POST", path, body);
    if (answer.status !== 422) return [String(answer.status)];
    const { detail } = SCHEMAS.validation.parse(JSON.parse(answer.body.toString()));
    return [
      // An entry of a list or a map is reported by its place.
      ...new Set(detail.map(({ loc, type }) => `${type === "missing" ? "missing " : ""}${loc.slice(0, 2).join(".")}`)),
    ].sort();
  };
  const required = fields.filter((field) => field.required).map(({ name }) => `missing body.${name}`);
  expect([path, ...(await wrong({}))]).toEqual([path, ...(required.length > 0 ? required.sort() : ["200"])]);
  for (const { name, kind, nullable } of fields) {
    const given = async (value: unknown) => [path, name, value, ...(await wrong({ ...least, [name]: value }))];
    const refused = (value: unknown) => [path, name, value, `body.${name}`];
    // The operation decides about the rest; the request is valid.
    const taken = (value: unknown) => [path, name, value, "200"];
    expect(await given(null)).toEqual(nullable ? taken(null) : refused(null));
    for (const value of WRONG[kind] ?? []) expect(await given(value)).toEqual(refused(value));
    for (const value of TAKEN[kind] ?? []) expect(await given(value)).toEqual(taken(value));
  }
  const all = fields.filter(({ kind }) => kind !== "map").map(({ name }) => `body.${name}`);
  expect(await wrong(Object.fromEntries(fields.map(({ name }) => [name, {}])))).toEqual(all.sort());
}

it("a wrong entry of a list or a map, by its place", async () => {
  const daemon = await startDaemon();
  const client = new AioClient(daemon.socketPath, { "x-aio-api-key": daemon.config.token });
  const places = async (path: string, body: object) =>
    (await client.invalid(path, body)).map(({ loc, type }) => [type, ...loc]);
  expect(await places("/v1/bash/exec", { command: "true", env: { A: "a", B: 7, C: null } })).toEqual([
    ["string_type", "body", "env", "B"],
  ]);
  expect(await places("/v1/file/grep", { path: "/", pattern: "x", include: ["*.py", 7, {}] })).toEqual([
    ["string_type", "body", "include", 1],
    ["string_type", "body", "include", 2],
  ]);
});

it("a body that is no object", async () => {
  const daemon = await startDaemon();
  const client = new AioClient(daemon.socketPath, { "x-aio-api-key": daemon.config.token });
  const types = async (body: unknown) =>
    (await client.invalid("/v1/shell/exec", body)).map(({ loc, type }) => [loc, type]);
  expect(await types("")).toEqual([[["body"], "missing"]]);
  expect(await types("{")).toEqual([[["body"], "json_invalid"]]);
  expect(await types("[]")).toEqual([[["body"], "model_attributes_type"]]);
  expect(await types("null")).toEqual([[["body"], "model_attributes_type"]]);
});
