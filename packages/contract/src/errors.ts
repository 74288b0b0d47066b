/**
 * The error registry.
 *
 * An error is a code with typed facts. The code decides everything else: the HTTP status, whether a retry can help, the
 * message, and the remedy. `ErrorDetails` names the codes, `ERRORS` must have an entry for each, and an entry without
 * status, retryability, message or remedy does not compile.
 * `docs/errors.md` is generated from this file.
 */

import { CHECKPOINT_ERRORS, type CheckpointErrorDetails } from "./errors/checkpoint-errors.ts";
import { FLEET_ERRORS, type FleetErrorDetails } from "./errors/fleet-errors.ts";
import { REQUEST_ERRORS, type RequestErrorDetails } from "./errors/request-errors.ts";
import { SANDBOX_ERRORS, type SandboxErrorDetails } from "./errors/sandbox-errors.ts";
import type { ErrorSpec, ErrorSpecs } from "./errors/spec.ts";
import type { OpenEnum } from "./open-enum.ts";

export type { CapacityCounts, ConfigProblem, DeathCause, LossReason } from "./errors/fleet-errors.ts";

/** The facts of each code. */
export interface ErrorDetails
  extends FleetErrorDetails,
    SandboxErrorDetails,
    RequestErrorDetails,
    CheckpointErrorDetails {}

export type ErrorCode = keyof ErrorDetails;

export const ERRORS: ErrorSpecs<ErrorDetails> = {
  ...FLEET_ERRORS,
  ...SANDBOX_ERRORS,
  ...REQUEST_ERRORS,
  ...CHECKPOINT_ERRORS,
};

/**
 * What a daemon may answer with: errors of using a sandbox, and of a request that is wrong in itself. Errors of having a sandbox
 * are the fleet's. Keys, threads, limits and uploads are the gateway's: it answers with the facts of these in headers.
 */
export const DAEMON_ERROR_CODES: ReadonlySet<ErrorCode> = new Set([
  ...(Object.keys(SANDBOX_ERRORS) as ErrorCode[]),
  "invalid_request",
  "malformed_request",
  "internal",
  "capability_missing",
  "sandbox_unreachable",
  "stale_generation",
] as const);

/** A code of this version, or of a peer's later version: a `switch` over codes needs a `default`. */
export type AnyErrorCode = OpenEnum<ErrorCode>;

/** The facts of a known code; for any code, the facts of one of them. */
type DetailsOf<Code extends AnyErrorCode> = Code extends ErrorCode ? ErrorDetails[Code] : ErrorDetails[ErrorCode];

/** An error on the wire. */
export interface SentError {
  readonly code: string;
  readonly message: string;
  readonly retryable: boolean;
  readonly details: Readonly<Record<string, unknown>>;
  readonly remedy?: string | undefined;
}

/**
 * The one error class of Sandlot. `code` decides everything; `details` are the facts of this case. Without a type
 * argument the code may be one of a later version (`SandlotError.received`).
 */
export class SandlotError<Code extends AnyErrorCode = AnyErrorCode> extends Error {
  override readonly name = "SandlotError";
  readonly code: Code;
  readonly details: DetailsOf<Code>;
  /** What to do about it. Its own property, so that printing the error shows it. */
  readonly remedy: string;

  constructor(
    code: Code,
    // A misspelled code has no facts.
    details: Code extends ErrorCode ? ErrorDetails[Code] : never,
    options?: { cause?: unknown },
    spec: ErrorSpec<DetailsOf<Code>> = ERRORS[code as ErrorCode] as ErrorSpec<DetailsOf<Code>>,
  ) {
    super(spec.message(details), options);
    this.code = code;
    this.details = details;
    this.remedy = spec.remedy;
    if (!isErrorCode(code) || spec !== ERRORS[code]) RECEIVED.set(this, spec);
  }

  /**
   * An error that a peer has sent, in the peer's words: with a code of a later version, or with facts that do not fit
   * this version's message.
   */
  static received(
    { code, message, retryable, details, remedy = UNKNOWN_REMEDY }: SentError,
    status: number,
  ): SandlotError {
    const spec = { status: status as ErrorSpec<never>["status"], retryable, message: () => message, remedy };
    return new SandlotError<AnyErrorCode>(code, details as never, {}, spec);
  }

  get status(): number {
    return specOf(this).status;
  }

  get retryable(): boolean {
    return specOf(this).retryable;
  }

  /** The JSON form of errors on the wire. */
  toJSON(): { code: Code; message: string; retryable: boolean; details: DetailsOf<Code>; remedy: string } {
    const { code, message, retryable, details, remedy } = this;
    return { code, message, retryable, details, remedy };
  }
}

/** The peer's status and retryability of an error. A private field would make errors of two codes different types. */
const RECEIVED = new WeakMap<SandlotError, Pick<ErrorSpec<never>, "status" | "retryable">>();

function specOf(error: SandlotError): Pick<ErrorSpec<never>, "status" | "retryable"> {
  return RECEIVED.get(error) ?? ERRORS[error.code as ErrorCode];
}

const UNKNOWN_REMEDY = "A newer version of Sandlot has sent this error: its documentation, docs/errors.md, says more.";

/** Whether this version knows the code; one from outside may be of a later version, or anything. */
export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERRORS, code);
}

/** Narrows an unknown error; with a code, to that one, so that its details have their type. */
export function isSandlotError(error: unknown): error is SandlotError;
export function isSandlotError<Code extends ErrorCode>(error: unknown, code: Code): error is SandlotError<Code>;
export function isSandlotError(error: unknown, code?: ErrorCode): error is SandlotError {
  return error instanceof SandlotError && (code === undefined || error.code === code);
}
