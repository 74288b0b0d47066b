/**
 * One shape for every error: `{ error: { code, message, retryable, details, remedy, requestId } }`, with `Retry-After`
 * where waiting helps. Every failure becomes a `SandlotError` first; its code decides the rest.
 *
 * Invariants
 * - A caller's mistake is never a 5xx.
 * - An unexpected error is `internal`: the log has it under the request's id, the response does not.
 */

import { isSandlotError, parseThreadId, SandlotError } from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import { hasZodFastifySchemaValidationErrors } from "fastify-type-provider-zod";
import { CallerGone } from "./thread-use.ts";

export interface ErrorReply {
  readonly error: {
    readonly code: string;
    readonly message: string;
    readonly retryable: boolean;
    readonly details: unknown;
    readonly remedy: string;
    readonly requestId: string;
  };
}

/** The cause of an error for which DeerFlow has its own text, shown by its web client. */
export class DeerFlowDetail extends Error {}

/** Fastify's own refusals, by their code. */
const FRAMEWORK_ERRORS: Readonly<Record<string, (request: FastifyRequest) => SandlotError>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: ({ routeOptions }) =>
    new SandlotError("payload_too_large", { what: "The body", maxBytes: routeOptions.bodyLimit ?? 0 }),
  FST_ERR_CTP_INVALID_MEDIA_TYPE: ({ headers }) =>
    new SandlotError("unsupported_media", {
      mediaType: headers["content-type"] ?? "A body without a type",
      problem: "this route does not take it",
    }),
  FST_ERR_CTP_EMPTY_JSON_BODY: () => invalid("body", "it is empty, but was announced as JSON"),
  FST_ERR_CTP_INVALID_JSON_BODY: () => invalid("body", "it is not JSON"),
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: () => invalid("Content-Length", "it differs from the length of the body"),
  FST_ERR_BAD_URL: () => invalid("URL", "it is not well-formed"),
  FST_INVALID_MULTIPART_CONTENT_TYPE: () =>
    new SandlotError("unsupported_media", { mediaType: "The body", problem: "this route takes multipart/form-data" }),
};

export function errorReply(error: SandlotError, requestId: string): ErrorReply {
  const { code, message, retryable, details, remedy } = error;
  return { error: { code, message, retryable, details, remedy, requestId } };
}

/** Converts any thrown value to the caller's error. */
export function toSandlotError(error: unknown, request: FastifyRequest): SandlotError {
  if (isSandlotError(error)) return error;
  if (hasZodFastifySchemaValidationErrors(error)) {
    const unknown = error.validation.find(({ keyword }) => keyword === "unrecognized_keys") as
      | { readonly params?: { readonly keys?: readonly string[] }; readonly instancePath: string }
      | undefined;
    if (unknown !== undefined)
      return unknownField([error.validationContext, ...partsOf(unknown.instancePath)], unknown.params?.keys ?? []);
    const issue = error.validation[0];
    const path = partsOf(issue?.instancePath ?? "");
    if (error.validationContext === "params" && path[0] === "thread") return threadProblem(request);
    return invalid([error.validationContext, ...path].join("."), issue?.message ?? "it is not valid");
  }
  // The caller has disconnected, so the error is only logged.
  if (error instanceof CallerGone) return new SandlotError("internal", { problem: error.message });
  const code = error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
  const known = FRAMEWORK_ERRORS[code]?.(request);
  if (known !== undefined) return known;
  const status = error instanceof Error && "statusCode" in error ? Number(error.statusCode) : 500;
  if (status >= 400 && status < 500)
    return invalid("request", error instanceof Error ? error.message : "it is refused");
  request.log.error({ err: error, requestId: request.id }, "a request failed with an unexpected error");
  return new SandlotError(
    "internal",
    { problem: "the gateway's log has more under this request's id" },
    { cause: error },
  );
}

function partsOf(instancePath: string): readonly string[] {
  return instancePath.split("/").filter((part) => part !== "");
}

/** A client of a later version, or one that has misspelled something: the name of the field says which. */
function unknownField(where: readonly (string | undefined)[], names: readonly string[]): SandlotError {
  const [name = ""] = names;
  return invalid([...where, name.slice(0, 100)].join("."), "this gateway does not know the field");
}

/** Routes without a schema for their query take none. Ours alone: DeerFlow's and previews take what they always took. */
export function refuseUnknownQuery(request: FastifyRequest): void {
  const { schema, url = "" } = request.routeOptions;
  const names = Object.keys((request.query ?? {}) as object);
  if (names.length > 0 && url.startsWith("/v1/") && schema?.querystring === undefined)
    throw unknownField(["querystring"], names);
}

export function sendError(thrown: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const error = toSandlotError(thrown, request);
  request.errorCode = error.code;
  const retryAfter = retryAfterSeconds(error);
  if (retryAfter !== null) reply.header("retry-after", String(retryAfter));
  if (isSandlotError(error, "range_not_satisfiable"))
    reply.header("content-range", `bytes */${error.details.sizeBytes}`);
  const body = errorReply(error, request.id);
  const { deerflow: forDeerFlow = false, provisioner: forProvisioner = false } = request.routeOptions.config;
  if (forProvisioner && error.code === "unauthorized")
    return reply.code(401).header("content-type", "text/plain; charset=utf-8").serializer(String).send("Unauthorized");
  const detail = forDeerFlow ? { detail: detailOf(thrown, error, forProvisioner) } : {};
  return reply
    .code(forDeerFlow ? deerFlowStatus(thrown, error) : error.status)
    .removeHeader("content-disposition")
    .removeHeader("etag")
    .header("content-type", "application/json; charset=utf-8")
    .serializer(JSON.stringify)
    .send({ ...detail, ...body });
}

/** Enough to mend a request by. */
const DETAILS_MAX = 20;

/** A text; for a body that the provisioner's schema refuses, a list with the place of the mistake. */
function detailOf(thrown: unknown, error: SandlotError, forProvisioner: boolean): unknown {
  if (forProvisioner && hasZodFastifySchemaValidationErrors(thrown) && thrown.validationContext === "body")
    return thrown.validation.slice(0, DETAILS_MAX).map(({ instancePath, message }) => ({
      ...{ type: "value_error", loc: ["body", ...partsOf(instancePath)], msg: message ?? "it is not valid" },
    }));
  return error.cause instanceof DeerFlowDetail ? error.cause.message : error.message;
}

/** DeerFlow's handlers refuse with 400; a body or query that does not fit its schema never reaches them. */
function deerFlowStatus(thrown: unknown, { code, status }: SandlotError): number {
  if (code !== "invalid_request") return status;
  return hasZodFastifySchemaValidationErrors(thrown) && thrown.validationContext !== "params" ? status : 400;
}

/** The library's code for an invalid thread. */
function threadProblem({ params }: FastifyRequest): SandlotError {
  try {
    parseThreadId((params as { readonly thread?: unknown }).thread);
  } catch (error) {
    if (isSandlotError(error)) return error;
  }
  return invalid("params.thread", "it is not valid");
}

export function retryAfterSeconds(error: SandlotError): number | null {
  const { details } = error;
  if ("retryAfterMs" in details) return Math.max(1, Math.ceil(details.retryAfterMs / 1_000));
  return error.retryable && (error.status === 429 || error.status === 503) ? 1 : null;
}

function invalid(field: string, problem: string): SandlotError {
  return new SandlotError("invalid_request", { field, problem });
}
