/** Errors of taking, reading and restoring checkpoints. */

import type { ErrorSpecs } from "./spec.ts";

/** The facts of each code. */
export interface CheckpointErrorDetails {
  checkpoint_not_found: { thread: string; checkpoint: string };
  checkpoint_damaged: { checkpoint: string; path: string; problem: string };
  checkpoint_refused: { thread: string; bound: string; max: number; actual: number };
  nothing_to_undo: { thread: string; direction: string };
  checkpoint_timeout: { timeoutMs: number; retryAfterMs: number };
  restore_incomplete: { thread: string; checkpoint: string; path: string; retryAfterMs: number };
}

export const CHECKPOINT_ERRORS: ErrorSpecs<CheckpointErrorDetails> = {
  checkpoint_not_found: {
    status: 404,
    retryable: false,
    message: ({ thread, checkpoint }) => `Thread ${thread} has no checkpoint ${checkpoint}.`,
    remedy: "List the thread's checkpoints; name one by its id, the first characters of it, or its label.",
  },
  checkpoint_damaged: {
    status: 500,
    retryable: false,
    message: ({ checkpoint, path, problem }) => `Checkpoint ${checkpoint} is damaged at ${path}: ${problem}.`,
    remedy: "Nothing was changed. Use another checkpoint; `sandlot checkpoint verify` names all that are damaged.",
  },
  checkpoint_refused: {
    status: 409,
    retryable: false,
    message: ({ thread, bound, max, actual }) =>
      `No checkpoint of thread ${thread} was taken: ${bound} would be ${actual}, and at most ${max} is allowed.`,
    remedy: "Remove labelled checkpoints or files that are no longer needed, or raise the bound in `checkpoints`.",
  },
  nothing_to_undo: {
    status: 409,
    retryable: false,
    message: ({ thread, direction }) => `Thread ${thread} has no checkpoint to ${direction} to.`,
    remedy: "List the thread's checkpoints, and restore one by its id.",
  },
  checkpoint_timeout: {
    status: 504,
    retryable: true,
    message: ({ timeoutMs }) => `The checkpoint, diff or restore was not done within ${timeoutMs} ms.`,
    remedy:
      "Give it a longer `timeoutMs`, or raise `checkpoints.timeoutMs`. A restore that had begun goes on by itself.",
  },
  restore_incomplete: {
    status: 503,
    retryable: true,
    message: ({ thread, checkpoint, path }) =>
      `The files of thread ${thread} do not match checkpoint ${checkpoint} yet: ${path} still differs.`,
    remedy: "Housekeeping goes on with the restore; the thread can be used when it is done.",
  },
};
