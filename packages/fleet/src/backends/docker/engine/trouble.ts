/**
 * Kinds of engine failures: no response, a refusal, or no such object.
 */

import { SandlotError } from "@sandlot/contract";

/** The engine has refused. The message is its own. */
export class EngineRefusal extends Error {
  override readonly name = "EngineRefusal";
  readonly status: number;

  constructor(status: number, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.status = status;
  }
}

const ENGINE_RETRY_AFTER_MS = 1_000;

export function isRefusal(error: unknown, status: number): error is EngineRefusal {
  return error instanceof EngineRefusal && error.status === status;
}

/** Classifies what the library throws: a refusal has a status, anything else means no response. */
export function engineError(error: unknown, address: string): unknown {
  if (error instanceof SandlotError || error instanceof EngineRefusal) return error;
  const { statusCode, json, message, code } = error as {
    statusCode?: number;
    json?: { message?: unknown } | null;
    message?: string;
    code?: string;
  };
  if (typeof statusCode === "number") {
    const said = typeof json?.message === "string" ? json.message : (message ?? "it said nothing");
    return new EngineRefusal(statusCode, said.trim(), { cause: error });
  }
  return unavailable(reasonOf(code, message ?? String(error)), [address], error);
}

export function unavailable(problem: string, tried: readonly string[], cause?: unknown): SandlotError {
  const details = { engine: "docker", problem, tried, retryAfterMs: ENGINE_RETRY_AFTER_MS };
  return new SandlotError("engine_unavailable", details, { cause });
}

/** The engine failed to make it, for a reason of its own. */
export function createFailed(problem: string, cause?: unknown): SandlotError {
  return new SandlotError("create_failed", { backend: "docker", problem }, { cause });
}

function reasonOf(code: string | undefined, message: string): string {
  if (code === "ENOENT") return "there is no socket";
  if (code === "ECONNREFUSED") return "nothing listens there";
  if (code === "EACCES" || code === "EPERM") return "this account may not use its socket";
  return message;
}
