/** Converts a gateway's response, or its absence, to the one error class. */

import { errorBodySchema, isErrorCode, isSandlotError, SandlotError, type SentError } from "@sandlot/contract";

export async function errorOf(response: Pick<Response, "status" | "text">): Promise<SandlotError> {
  const text = await response.text().catch(() => "");
  const parsed = errorBodySchema.safeParse(parseJson(text));
  if (parsed.success) return errorFrom(parsed.data.error, response.status);
  // Something else responded: a proxy, or another server.
  const error = new SandlotError("internal", {
    problem: `the gateway's address answered ${response.status} without an error of ours`,
  });
  foreign.add(error);
  return error;
}

const foreign = new WeakSet<SandlotError>();

/** The response was no error of ours: perhaps no gateway is at the address any more. */
export function isForeign(error: unknown): boolean {
  return isSandlotError(error) && foreign.has(error);
}

/**
 * An error that the gateway sent. One of a later version keeps its code, its sentence and its facts, also where this version
 * knows the code and other facts for it.
 */
function errorFrom(sent: SentError, status: number): SandlotError {
  const { code, details } = sent;
  if ("retryAfterMs" in details && typeof details.retryAfterMs !== "number") {
    const { retryAfterMs: _, ...others } = details;
    return errorFrom({ ...sent, details: others }, status);
  }
  if (!isErrorCode(code)) return SandlotError.received(sent, status);
  try {
    const error = new SandlotError(code, details as never);
    return /\bundefined\b/.test(error.message) ? SandlotError.received(sent, status) : error;
  } catch {
    return SandlotError.received(sent, status);
  }
}

/** What a schema makes of a response. One that does not fit is an error that names the first thing that is wrong. */
export function readResponse<Value>(schema: Reader<Value>, data: unknown, url: string): Value {
  try {
    return schema.parse(data);
  } catch (error) {
    throw new SandlotError("bad_gateway_response", { url, problem: firstProblem(error) }, { cause: error });
  }
}

export function jsonOf(text: string, url: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new SandlotError("bad_gateway_response", { url, problem: "it is not JSON" }, { cause: error });
  }
}

/** The error that is an event of a stream. */
export function errorOfEvent(data: unknown, url: string): SandlotError {
  const parsed = errorBodySchema.safeParse(data);
  if (parsed.success) return errorFrom(parsed.data.error, EVENT_STATUS);
  return new SandlotError("bad_gateway_response", { url, problem: "the stream failed without an error of ours" });
}

/** Of an error whose code is unknown: its stream began with 200, and the event has no status. */
const EVENT_STATUS = 502;

/** A zod schema is one. */
export interface Reader<Value> {
  parse(data: unknown): Value;
}

function firstProblem(error: unknown): string {
  const issues = error instanceof Error && "issues" in error && Array.isArray(error.issues) ? error.issues : [];
  const [issue] = issues as readonly { readonly path?: readonly PropertyKey[]; readonly message?: string }[];
  if (issue === undefined) return error instanceof Error ? error.message : String(error);
  const where = issue.path === undefined || issue.path.length === 0 ? "it" : issue.path.map(String).join(".");
  return `${where}: ${issue.message ?? "not as expected"}`;
}

/** The gateway was unreachable, or the connection broke. Whether the request took effect is unknown. */
export class ConnectionBroken extends Error {
  override readonly name = "ConnectionBroken";
}

/** Node's codes of an untrusted certificate. Retrying does not help. */
const UNTRUSTED =
  /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_|CERT_|ERR_TLS_CERT_ALTNAME_INVALID|HOSTNAME_MISMATCH)/;

export function unreachable(url: string, cause: unknown): SandlotError {
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  if (UNTRUSTED.test(code))
    return new SandlotError("gateway_untrusted", { url, problem: `${(cause as Error).message} (${code})` }, { cause });
  const problem = `the gateway at ${url} does not answer (${cause instanceof Error ? cause.message : String(cause)})`;
  return new SandlotError("sandbox_unreachable", { sandboxId: "", problem, retryAfterMs: 1_000 }, { cause });
}

/**
 * The connection broke, a gateway that is starting could not respond, or there are too many requests: a stream may
 * resume.
 */
export function isBreak(error: unknown): boolean {
  if (error instanceof ConnectionBroken) return true;
  return isSandlotError(error) && error.retryable && (error.status === 503 || error.status === 429);
}

/** Refused before it had any effect: every request can be retried. */
export function isRefusedUntouched(error: unknown): error is SandlotError {
  return (
    isSandlotError(error, "rate_limited") ||
    isSandlotError(error, "capacity_exhausted") ||
    isSandlotError(error, "store_recovering") ||
    isSandlotError(error, "engine_unreachable") ||
    isSandlotError(error, "exec_limit")
  );
}

export function retryAfterMs({ details }: SandlotError): number | null {
  return "retryAfterMs" in details ? details.retryAfterMs : null;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
