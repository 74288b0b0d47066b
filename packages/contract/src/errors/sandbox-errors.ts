/** Errors of using a sandbox: commands, shells, files. */

import type { ErrorSpecs } from "./spec.ts";

/** The facts of each code. */
export interface SandboxErrorDetails {
  exec_conflict: { execId: string };
  exec_not_found: { execId: string };
  exec_limit: { running: number; max: number; retryAfterMs: number };
  stdin_closed: { execId: string };
  session_not_found: { sessionId: string };
  session_busy: { sessionId: string; retryAfterMs: number };
  terminal_not_found: { terminalId: string };
  wait_timeout: { waitedFor: string; timeoutMs: number };
  file_not_found: { path: string };
  file_exists: { path: string };
  file_changed: { path: string; expected: string | null; actual: string | null };
  file_too_large: { path: string; sizeBytes: number; maxBytes: number };
  file_not_text: { path: string };
  not_a_directory: { path: string };
  is_a_directory: { path: string };
  directory_not_empty: { path: string };
  read_only_path: { path: string };
  permission_denied: { path: string };
  disk_limit_exceeded: { path: string };
  watch_limit: { path: string; problem: string; retryAfterMs: number };
  invalid_path: { path: string; problem: string };
  invalid_pattern: { pattern: string; problem: string };
  bad_sandbox_response: { problem: string };
}

export const SANDBOX_ERRORS: ErrorSpecs<SandboxErrorDetails> = {
  exec_conflict: {
    status: 409,
    retryable: false,
    message: ({ execId }) => `The exec id ${execId} was already used for another command.`,
    remedy: "Choose a new exec id for a new command; repeat the identical call to follow the first one.",
  },
  exec_not_found: {
    status: 404,
    retryable: false,
    message: ({ execId }) => `There is no exec ${execId}; it never ran here, or its result is no longer kept.`,
    remedy: "Start it again. Results of ended commands are kept for a while, the newest longest.",
  },
  exec_limit: {
    status: 429,
    retryable: true,
    message: ({ running, max }) => `${running} commands run in this sandbox; at most ${max} may.`,
    remedy: "End commands that are no longer needed, or wait for `retryAfterMs`.",
  },
  stdin_closed: {
    status: 409,
    retryable: false,
    message: ({ execId }) => `The stdin of exec ${execId} is closed.`,
    remedy: "Spawn the command with `keepStdinOpen`, and write before ending its stdin.",
  },
  session_not_found: {
    status: 404,
    retryable: false,
    message: ({ sessionId }) => `There is no session ${sessionId}.`,
    remedy: "Open the session first; sessions end with their sandbox.",
  },
  session_busy: {
    status: 409,
    retryable: true,
    message: ({ sessionId }) => `Session ${sessionId} has too many commands waiting.`,
    remedy: "Wait for the running command, or open a session of your own.",
  },
  terminal_not_found: {
    status: 404,
    retryable: false,
    message: ({ terminalId }) => `There is no terminal ${terminalId}; it has ended or never was.`,
    remedy: "Open a terminal; list them to see which are open.",
  },
  wait_timeout: {
    // Not 504: a proxy would treat the gateway as broken.
    status: 409,
    retryable: true,
    message: ({ waitedFor, timeoutMs }) => `Waited ${timeoutMs} ms for ${waitedFor}, which did not come.`,
    remedy: "Look at what the command has printed, or wait longer.",
  },
  file_not_found: {
    status: 404,
    retryable: false,
    message: ({ path }) => `${path} does not exist.`,
    remedy: "List the directory to see what is there.",
  },
  file_exists: {
    status: 409,
    retryable: false,
    message: ({ path }) => `${path} exists already.`,
    remedy: "Choose another name, or remove what is there first.",
  },
  file_changed: {
    status: 412,
    retryable: false,
    message: ({ path, expected, actual }) =>
      `${path} is not as expected: version ${expected ?? "none"} was expected, ${actual ?? "none"} is there.`,
    remedy: "Read the file again, apply your change to what is there now, and write with its version.",
  },
  file_too_large: {
    status: 413,
    retryable: false,
    message: ({ path, sizeBytes, maxBytes }) => `${path} has ${sizeBytes} bytes; the limit is ${maxBytes}.`,
    remedy: "Read a range of it, or raise the limit.",
  },
  file_not_text: {
    status: 415,
    retryable: false,
    message: ({ path }) => `${path} is not UTF-8 text.`,
    remedy:
      "Read its bytes with `read` or `download`, or pass `lossy: true` to `readText` and do not write the text back.",
  },
  not_a_directory: {
    status: 409,
    retryable: false,
    message: ({ path }) => `${path} is not a directory.`,
    remedy: "Name a directory.",
  },
  is_a_directory: {
    status: 409,
    retryable: false,
    message: ({ path }) => `${path} is a directory.`,
    remedy: "Name a file, or use the recursive form of the call where it has one.",
  },
  directory_not_empty: {
    status: 409,
    retryable: false,
    message: ({ path }) => `${path} is not empty.`,
    remedy: "Remove recursively, or empty it first.",
  },
  read_only_path: {
    status: 409,
    retryable: false,
    message: ({ path }) => `${path} is read-only.`,
    remedy: "Write below /mnt/user-data, which is always writable.",
  },
  permission_denied: {
    status: 403,
    retryable: false,
    message: ({ path }) => `The sandbox's user may not do this with ${path}.`,
    remedy: "Work below /mnt/user-data, which belongs to the sandbox, or change the permissions inside the sandbox.",
  },
  watch_limit: {
    status: 429,
    retryable: true,
    message: ({ path, problem }) => `${path} cannot be watched: ${problem}.`,
    remedy:
      "End other watches and programs in the sandbox that watch files, or raise the kernel's `fs.inotify` limits.",
  },
  disk_limit_exceeded: {
    status: 507,
    retryable: false,
    message: ({ path }) => `There is no room left for ${path}.`,
    remedy: "Remove files that are no longer needed, or raise the sandbox's disk limit.",
  },
  invalid_path: {
    status: 422,
    retryable: false,
    message: ({ path, problem }) => `The path ${JSON.stringify(path)} is not usable: ${problem}.`,
    remedy: "Give an absolute path without NUL bytes.",
  },
  invalid_pattern: {
    status: 422,
    retryable: false,
    message: ({ pattern, problem }) => `The pattern ${JSON.stringify(pattern)} is not usable: ${problem}.`,
    remedy: "Correct the pattern, or search literally.",
  },
  bad_sandbox_response: {
    status: 502,
    retryable: false,
    message: ({ problem }) => `The sandbox sent a response that cannot be used: ${problem}.`,
    remedy:
      "A preview: look at the server on that port. Anything else: code inside may have replaced the sandbox's daemon; stop the sandbox and acquire again, the workspace is kept.",
  },
};
