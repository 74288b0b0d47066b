/**
 * The messages between a gateway and the process that uses the workspaces volume. Both are of one version and one
 * program, and what they exchange is their own; bytes of files are passed on as they are.
 *
 * A call may have content (a file to write): the process pulls it piece by piece, so at most one piece is on its way.
 */

import { isErrorCode, SandlotError } from "@sandlot/contract";

export type ToVolume =
  | { readonly id: number; readonly method: string; readonly args: readonly unknown[] }
  /** The answer to a pull; `null` ends the content. */
  | { readonly id: number; readonly piece: Uint8Array | null }
  /** The source of the content has failed. */
  | { readonly id: number; readonly broken: string };

export type FromVolume =
  | { readonly ready: true }
  | { readonly id: number; readonly pull: true }
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: SentError }
  /** A failure of tidying up, which no call reports. */
  | { readonly problem: string };

interface SentError {
  readonly code: string | null;
  readonly details: object;
  readonly message: string;
}

export function sendableError(error: unknown): SentError {
  if (error instanceof SandlotError) return { code: error.code, details: error.details, message: error.message };
  return { code: null, details: {}, message: error instanceof Error ? error.message : String(error) };
}

export function receivedError({ code, details, message }: SentError): Error {
  if (code === null || !isErrorCode(code)) return new Error(message);
  return new SandlotError(code, details as never);
}
