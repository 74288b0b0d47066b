/**
 * The shapes of the AIO API: its wrapper, its validation errors, its file errors.
 *
 * A failed operation is HTTP 200 with `success: false`; a command that ran and failed is a success with an exit code. A
 * body with the wrong fields is 422 with a list of the mistakes.
 */

import type { ServerResponse } from "node:http";
import { SandlotError } from "@sandlot/contract";
import { sendJson } from "../wire/body.ts";

const DONE = "Operation successful";

export function sendData(response: ServerResponse, data: unknown, message: string = DONE): void {
  sendJson(response, { success: true, message, data, hint: null });
}

export function sendFailure(response: ServerResponse, message: string, data: unknown = null): void {
  sendJson(response, { success: false, message, data, hint: null });
}

/** Without the wrapper: errors of routes that do not use it. */
export function sendDetail(response: ServerResponse, status: number, detail: unknown): void {
  sendJson(response, { detail }, status);
}

export interface FieldProblem {
  readonly type: string;
  readonly loc: readonly (string | number)[];
  readonly msg: string;
  readonly input: unknown;
}

/** The body lacks required fields or has wrong ones. */
export class ValidationProblem extends Error {
  override readonly name = "ValidationProblem";
  readonly problems: readonly FieldProblem[];

  constructor(problems: readonly FieldProblem[]) {
    super("the request is not valid");
    this.problems = problems;
  }
}

/** An operation that failed in AIO's sense: reported with `success: false`. */
export class OperationProblem extends Error {
  override readonly name = "OperationProblem";
}

export interface FileOperationError {
  readonly path: string;
  readonly operation: string;
  readonly message: string;
  readonly error_type: string;
  readonly retryable: boolean;
  readonly errno: number | null;
  readonly errno_name: string | null;
  readonly exception_type: string | null;
}

/** By code of the contract: AIO's type, and the corresponding Python exception. */
const FILE_ERRORS: Readonly<Record<string, readonly [type: string, exception: string]>> = {
  file_not_found: ["not_found", "FileNotFoundError"],
  permission_denied: ["permission_denied", "PermissionError"],
  is_a_directory: ["invalid_target", "IsADirectoryError"],
  not_a_directory: ["invalid_target", "NotADirectoryError"],
  file_exists: ["already_exists", "FileExistsError"],
  invalid_path: ["invalid_path", "ValueError"],
  invalid_pattern: ["invalid_path", "ValueError"],
  read_only_path: ["read_only_filesystem", "OSError"],
  disk_limit_exceeded: ["no_space_left", "OSError"],
  unsupported_media: ["decode_error", "UnicodeDecodeError"],
};

/** The file exists but does not suit the operation. */
const UNFIT = ["invalid_target", "ValueError"] as const;
const OTHER = ["io_error", "OSError"] as const;

function kindOf(error: unknown): readonly [type: string, exception: string] {
  if (error instanceof OperationProblem) return UNFIT;
  return (error instanceof SandlotError && FILE_ERRORS[error.code]) || OTHER;
}

export function fileOperationError(error: unknown, operation: string, path: string): FileOperationError {
  const [type, exception] = kindOf(error);
  const { errno, code } = ((error as Error).cause ?? {}) as NodeJS.ErrnoException;
  return {
    ...{ path, operation },
    message: error instanceof Error ? error.message : String(error),
    error_type: type,
    retryable: false,
    errno: typeof errno === "number" ? Math.abs(errno) : null,
    errno_name: typeof code === "string" ? code : null,
    exception_type: exception,
  };
}
