/** From what a gateway answers, or does not, to the one error class. */

import { errorBodySchema, isErrorCode, isSandlotError, SandlotError } from "@sandlot/contract";

export async function errorOf(response: Pick<Response, "status" | "text">): Promise<SandlotError> {
  const text = await response.text().catch(() => "");
  const parsed = errorBodySchema.safeParse(parseJson(text));
  if (parsed.success) return errorFrom(parsed.data.error);
  // Something between us and the gateway answered: a proxy, or another server altogether.
  return new SandlotError("internal", {
    problem: `the gateway's address answered ${response.status} without an error of ours`,
  });
}

/** An error as it travels. A code that this version does not know is told as `internal`. */
export function errorFrom({
  code,
  message,
  details,
}: {
  code: string;
  message: string;
  details: unknown;
}): SandlotError {
  if (!isErrorCode(code)) return new SandlotError("internal", { problem: `${code}: ${message}` });
  return new SandlotError(code, details as never);
}

/** The gateway could not be reached, or the connection broke. What was asked may or may not have happened. */
export class ConnectionBroken extends Error {
  override readonly name = "ConnectionBroken";
}

/** What a certificate is refused for, by Node's codes. Trying again does not change any of these. */
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
 * The connection broke, a gateway that is only just starting could not answer, or too many ask: what a stream is about
 * may go on.
 */
export function isBreak(error: unknown): boolean {
  if (error instanceof ConnectionBroken) return true;
  return isSandlotError(error) && error.retryable && (error.status === 503 || error.status === 429);
}

/** Refused before anything was done: asking again is safe, whatever was asked. */
export function isRefusedUntouched(error: unknown): error is SandlotError {
  return (
    isSandlotError(error, "rate_limited") ||
    isSandlotError(error, "capacity_exhausted") ||
    isSandlotError(error, "store_recovering") ||
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
