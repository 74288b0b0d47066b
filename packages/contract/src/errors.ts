/**
 * The error registry.
 *
 * An error is a code with typed facts. Everything else follows from the code: the HTTP status, whether trying again
 * can help, the sentence a person reads, and what to do about it. `ErrorDetails` names the codes, `ERRORS` must have
 * an entry for each, and an entry without status, retryability, message or remedy does not compile.
 * `docs/errors.md` is generated from this file.
 */

import { FLEET_ERRORS, type FleetErrorDetails } from "./errors/fleet-errors.ts";
import { REQUEST_ERRORS, type RequestErrorDetails } from "./errors/request-errors.ts";
import { SANDBOX_ERRORS, type SandboxErrorDetails } from "./errors/sandbox-errors.ts";
import type { ErrorSpec, ErrorSpecs } from "./errors/spec.ts";

export type { CapacityCounts, ConfigProblem, LossReason } from "./errors/fleet-errors.ts";

/** The facts that each code carries. */
export interface ErrorDetails extends FleetErrorDetails, SandboxErrorDetails, RequestErrorDetails {}

export type ErrorCode = keyof ErrorDetails;

export const ERRORS: ErrorSpecs<ErrorDetails> = { ...FLEET_ERRORS, ...SANDBOX_ERRORS, ...REQUEST_ERRORS };

/** What a daemon may answer with: errors of using a sandbox and of asking. Those of having one are the fleet's. */
export const DAEMON_ERROR_CODES: ReadonlySet<ErrorCode> = new Set([
  ...(Object.keys(SANDBOX_ERRORS) as ErrorCode[]),
  ...(Object.keys(REQUEST_ERRORS) as ErrorCode[]),
  "capability_missing",
  "sandbox_unreachable",
  "stale_generation",
] as const);

/** The one error class of Sandlot. `code` decides everything; `details` are the facts of this case. */
export class SandlotError<Code extends ErrorCode = ErrorCode> extends Error {
  override readonly name = "SandlotError";
  readonly code: Code;
  readonly details: ErrorDetails[Code];
  /** What to do about it. A property of its own, so that printing the error shows it. */
  readonly remedy: string;

  constructor(code: Code, details: ErrorDetails[Code], options?: { cause?: unknown }) {
    super((ERRORS[code] as ErrorSpec<ErrorDetails[Code]>).message(details), options);
    this.code = code;
    this.details = details;
    this.remedy = ERRORS[code].remedy;
  }

  get status(): number {
    return ERRORS[this.code].status;
  }

  get retryable(): boolean {
    return ERRORS[this.code].retryable;
  }

  /** The one shape in which errors travel. */
  toJSON(): { code: Code; message: string; retryable: boolean; details: ErrorDetails[Code]; remedy: string } {
    const { code, message, retryable, details, remedy } = this;
    return { code, message, retryable, details, remedy };
  }
}

/** Whether this version knows the code; one that came from outside may be of a later version, or anything. */
export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERRORS, code);
}

/** Narrows an unknown error to one code, so that its details have their type. */
export function isSandlotError<Code extends ErrorCode>(error: unknown, code?: Code): error is SandlotError<Code> {
  return error instanceof SandlotError && (code === undefined || error.code === code);
}
