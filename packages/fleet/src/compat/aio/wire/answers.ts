/**
 * Responses of an AIO server, and their translation to the contract.
 *
 * The server runs inside the sandbox, next to untrusted code, so its responses are parsed like all outside input. HTTP
 * 200 with `success: false` means that an operation failed; it is never taken for a success.
 */

import { SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { checked, readJson, readShortJson } from "../../../untrusted/json.ts";
import { aioLimit } from "../../../untrusted/limits.ts";
import { anythingSchema } from "./schemas.ts";
import type { Reply } from "./wire.ts";

/** A server's text goes into errors, and is cut there. */
const SAID_MAX_CHARS = 1_000;

const wrapperSchema = z.object({
  success: z.boolean().default(true),
  message: z.string().nullish(),
  data: z.unknown(),
  hint: z.string().nullish(),
});

const fileFailureSchema = z.object({
  path: z.string(),
  operation: z.string(),
  message: z.string(),
  error_type: z.string(),
  errno_name: z.string().nullish(),
  exception_type: z.string().nullish(),
});

const validationSchema = z.object({
  detail: z.array(z.object({ loc: z.array(z.union([z.string(), z.number()])), msg: z.string() })).min(1),
});

export type FileFailure = z.infer<typeof fileFailureSchema>;

/** The server responded that the operation failed. */
export class AioRefusal extends Error {
  override readonly name = "AioRefusal";
  /** The details of a failed file operation. */
  readonly file: FileFailure | null;

  constructor(message: string, file: FileFailure | null) {
    super(message);
    this.file = file;
  }
}

/** The data of a successful operation. Everything else is thrown. */
export async function dataOf<T>(schema: z.ZodType<T>, reply: Reply, called: string): Promise<T> {
  if (reply.status !== 200) throw httpError(reply, called);
  const value = await readJson(reply.body, aioLimit(called).maxValues);
  const wrapped = wrapperSchema.safeParse(value);
  if (!wrapped.success) throw unexpected(called);
  const { success, message, hint, data } = wrapped.data;
  if (!success) {
    const file = fileFailureSchema.safeParse(data);
    const said = [message, hint].filter((text) => text != null && text !== "").join(": ") || "it does not say why";
    throw new AioRefusal(said.slice(0, SAID_MAX_CHARS), file.success ? file.data : null);
  }
  const parsed = await checked(schema, data);
  if (parsed === undefined && schema !== (anythingSchema as z.ZodType)) throw unexpected(called);
  return parsed as T;
}

/** A proxy in front of the server may respond for it while it is down. */
const NOBODY_BEHIND: ReadonlySet<number> = new Set([502, 503, 504]);

export class ServerAway extends Error {
  override readonly name = "ServerAway";
}

export function httpError({ status, body }: Reply, called: string): Error {
  if (NOBODY_BEHIND.has(status)) return new ServerAway(`${called} was answered with ${status}`);
  if (status === 401 || status === 403)
    return new SandlotError("unauthorized", { problem: "the sandbox's server does not take its key" });
  if (status === 404 || status === 405)
    return new SandlotError("capability_missing", { backend: "aio", capability: called, neededBy: "the call" });
  const invalid = validationSchema.safeParse(readShortJson(body));
  const [first] = invalid.success && status === 422 ? invalid.data.detail : [];
  if (first !== undefined)
    return new SandlotError("invalid_request", {
      field: first.loc.slice(1).join("."),
      problem: first.msg.slice(0, SAID_MAX_CHARS),
    });
  return new SandlotError("internal", { problem: `the sandbox's server answered ${called} with ${status}` });
}

/** A failed file operation, by AIO's own kinds. */
export function fileError(
  { error_type, errno_name, exception_type, message }: FileFailure,
  path: string,
): SandlotError {
  const isNoDirectory = errno_name === "ENOTDIR" || exception_type === "NotADirectoryError";
  switch (error_type) {
    case "not_found":
      return new SandlotError("file_not_found", { path });
    case "permission_denied":
      return new SandlotError("permission_denied", { path });
    case "invalid_target":
      return new SandlotError(isNoDirectory ? "not_a_directory" : "is_a_directory", { path });
    case "already_exists":
      return new SandlotError("file_exists", { path });
    case "invalid_path":
      return new SandlotError("invalid_path", { path, problem: message });
    case "read_only_filesystem":
      return new SandlotError("read_only_path", { path });
    case "no_space_left":
      return new SandlotError("disk_limit_exceeded", { path });
    case "decode_error":
      return new SandlotError("unsupported_media", { mediaType: path, problem: message });
    default:
      return new SandlotError("internal", { problem: `${path}: ${message}` });
  }
}

function unexpected(called: string): SandlotError {
  return new SandlotError("bad_sandbox_response", { problem: `its server answered ${called} with something else` });
}
