/**
 * A client of the AIO API with its own schemas, written from the description of the API. It shares no code with the
 * daemon, so that both can be wrong only independently.
 */

import { type Agent, type RequestOptions, request } from "node:http";
import { z } from "zod";

const shellStatus = z.enum(["running", "completed", "no_change_timeout", "hard_timeout", "terminated"]);
const bashStatus = z.enum(["pending", "running", "completed", "timed_out", "killed"]);
const nullable = <T extends z.ZodType>(schema: T) => schema.nullish();

const consoleRecords = nullable(
  z.array(z.object({ ps1: z.string(), command: z.string(), output: z.string().optional() })),
);
const toolSpec = z.object({
  ver: nullable(z.string()),
  bin: nullable(z.string()),
  alias: z.array(z.string()).optional(),
});
const bashSession = z.object({
  session_id: z.string(),
  status: z.enum(["ready", "closed"]),
  working_dir: z.string(),
  created_at: z.string(),
  last_used_at: z.string(),
  current_command: nullable(z.string()),
  command_count: z.int().optional(),
});

/** Required fields are required here; an optional or nullable field must have its declared type when it is present. */
export const SCHEMAS = {
  sandbox: z.object({
    success: z.boolean(),
    message: nullable(z.string()),
    data: nullable(z.string()),
    hint: nullable(z.string()),
    home_dir: z.string(),
    workspace: nullable(z.string()),
    version: z.string(),
    detail: z.object({
      system: z.object({
        os: z.string(),
        os_version: z.string(),
        arch: z.string(),
        user: z.string(),
        home_dir: z.string(),
        workspace: nullable(z.string()),
        timezone: z.string(),
        occupied_ports: z.array(z.string()),
      }),
      runtime: z.object({ python: z.array(toolSpec), nodejs: z.array(toolSpec) }),
      utils: z.array(
        z.object({
          category: z.string(),
          tools: z.array(z.object({ name: z.string(), description: nullable(z.string()) })),
        }),
      ),
    }),
  }),
  shellExec: z.object({
    session_id: z.string(),
    command: z.string(),
    status: shellStatus,
    output: nullable(z.string()),
    console: consoleRecords,
    exit_code: nullable(z.int()),
  }),
  shellView: z.object({
    output: z.string(),
    session_id: z.string(),
    console: consoleRecords,
    status: shellStatus,
    command: nullable(z.string()),
    exit_code: nullable(z.int()),
  }),
  shellStatus: z.object({ status: shellStatus, exit_code: nullable(z.int()), returncode: nullable(z.int()) }),
  shellSession: z.object({ session_id: z.string(), working_dir: z.string() }),
  shellSessions: z.object({
    sessions: z.record(
      z.string(),
      z.object({
        working_dir: z.string(),
        created_at: z.string(),
        last_used_at: z.string(),
        age_seconds: z.int(),
        status: z.string(),
        current_command: nullable(z.string()),
      }),
    ),
  }),
  shellStats: z.object({
    total_sessions: z.int(),
    active_sessions: z.int(),
    idle_sessions: z.int(),
    max_sessions: z.int(),
    session_timeout: z.int(),
    usage_ratio: z.number(),
  }),
  bashExec: z.object({
    session_id: z.string(),
    command_id: z.string(),
    command: z.string(),
    status: bashStatus,
    stdout: nullable(z.string()),
    stderr: nullable(z.string()),
    exit_code: nullable(z.int()),
    offset: z.int(),
    stderr_offset: z.int(),
  }),
  bashOutput: z.object({
    session_id: z.string(),
    stdout: z.string(),
    stderr: z.string(),
    offset: z.int(),
    stderr_offset: z.int(),
    command: nullable(
      z.object({ command_id: z.string(), command: z.string(), status: bashStatus, exit_code: nullable(z.int()) }),
    ),
  }),
  bashSession,
  fileRead: z.object({ content: z.string(), file: z.string() }),
  fileWrite: z.object({ file: z.string(), bytes_written: nullable(z.int()) }),
  fileReplace: z.object({ file: z.string(), replaced_count: z.int() }),
  fileSearch: z.object({ file: z.string(), matches: z.array(z.string()), line_numbers: z.array(z.int()) }),
  fileFind: z.object({ path: z.string(), files: z.array(z.string()) }),
  fileGrep: z.object({
    path: z.string(),
    pattern: z.string(),
    matches: z.array(
      z.object({
        file: z.string(),
        line_number: z.int(),
        line_content: z.string(),
        context_before: nullable(z.array(z.string())),
        context_after: nullable(z.array(z.string())),
      }),
    ),
    match_count: z.int(),
    files_searched: nullable(z.int()),
    files_matched: nullable(z.int()),
    truncated: z.boolean(),
  }),
  fileGlob: z.object({
    path: z.string(),
    pattern: z.string(),
    files: z.array(
      z.object({
        path: z.string(),
        name: z.string(),
        is_directory: z.boolean(),
        size: nullable(z.int()),
        modified_time: nullable(z.string()),
      }),
    ),
    total_count: z.int(),
    truncated: z.boolean(),
  }),
  fileList: z.object({
    path: z.string(),
    files: z.array(
      z.object({
        name: z.string(),
        path: z.string(),
        is_directory: z.boolean(),
        size: nullable(z.int()),
        modified_time: nullable(z.string()),
        permissions: nullable(z.string()),
        extension: nullable(z.string()),
      }),
    ),
    total_count: z.int(),
    directory_count: z.int(),
    file_count: z.int(),
  }),
  editor: z.object({
    output: z.string(),
    error: nullable(z.string()),
    path: z.string(),
    prev_exist: z.boolean(),
    old_content: nullable(z.string()),
    new_content: nullable(z.string()),
    metadata: nullable(z.record(z.string(), z.unknown())),
  }),
  upload: z.object({ file_path: z.string(), file_size: z.int(), success: z.boolean() }),
  fileError: z.object({
    path: z.string(),
    operation: z.string(),
    message: z.string(),
    error_type: z.enum([
      "not_found",
      "permission_denied",
      "invalid_target",
      "already_exists",
      "invalid_path",
      "read_only_filesystem",
      "no_space_left",
      "decode_error",
      "io_error",
    ]),
    retryable: z.boolean(),
    errno: nullable(z.int()),
    errno_name: nullable(z.string()),
    exception_type: nullable(z.string()),
  }),
  validation: z.object({
    detail: z
      .array(z.object({ loc: z.array(z.union([z.string(), z.int()])), msg: z.string(), type: z.string() }))
      .min(1),
  }),
} as const;

const wrapper = z.object({
  success: z.boolean(),
  message: z.string().nullable(),
  data: z.unknown(),
  hint: z.string().nullable(),
});

export interface Answer {
  readonly status: number;
  readonly body: Buffer;
}

export class AioClient {
  readonly #where: RequestOptions;
  readonly #headers: Readonly<Record<string, string>>;

  /** At the path of a socket, at a port of the loopback, or over an agent's connections. */
  constructor(where: string | number | Agent, headers: Readonly<Record<string, string>>) {
    this.#where =
      typeof where === "string"
        ? { socketPath: where }
        : typeof where === "number"
          ? { host: "127.0.0.1", port: where }
          : { agent: where };
    this.#headers = headers;
  }

  ask(method: string, path: string, body?: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Answer> {
    const content =
      body === undefined
        ? undefined
        : Buffer.isBuffer(body)
          ? body
          : Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
    return new Promise((resolve, reject) => {
      const outgoing = request(
        {
          ...this.#where,
          method,
          path,
          headers: { "content-type": "application/json", ...this.#headers, ...headers },
        },
        (response) => {
          const parts: Buffer[] = [];
          response.on("data", (part: Buffer) => parts.push(part));
          response.on("end", () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(parts) }));
        },
      );
      outgoing.on("error", reject);
      outgoing.end(content);
    });
  }

  /** The data of an operation that succeeded. */
  async data<T>(schema: z.ZodType<T>, path: string, body: unknown, method = "POST"): Promise<T> {
    const answer = await this.ask(method, path, body);
    const { success, message, data } = wrapper.parse(JSON.parse(answer.body.toString()));
    if (answer.status !== 200 || !success) throw new Error(`${path}: ${answer.status} ${message}`);
    return schema.parse(data);
  }

  /** The data of an operation that failed: HTTP 200, and `success: false`. */
  async failure<T>(schema: z.ZodType<T>, path: string, body: unknown, method = "POST"): Promise<T> {
    const answer = await this.ask(method, path, body);
    const { success, data } = wrapper.parse(JSON.parse(answer.body.toString()));
    if (answer.status !== 200 || success) throw new Error(`${path} did not fail: ${answer.status}`);
    return schema.parse(data);
  }

  async invalid(path: string, body: unknown): Promise<z.infer<typeof SCHEMAS.validation>["detail"]> {
    const answer = await this.ask("POST", path, body);
    if (answer.status !== 422) throw new Error(`${path}: ${answer.status} instead of 422`);
    return SCHEMAS.validation.parse(JSON.parse(answer.body.toString())).detail;
  }
}
