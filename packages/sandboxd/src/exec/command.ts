/**
 * Checks an exec call from outside and turns it into a program with arguments.
 */

import { accessSync, constants, statSync } from "node:fs";
import { ENV_NAME_PATTERN, type ExecCall, SANDBOX_LIMITS, SandlotError } from "@sandlot/contract";
import { fileError } from "../files/file-error.ts";
import { checkPath } from "../files/paths.ts";

export interface Program {
  readonly file: string;
  readonly args: readonly string[];
}

const ID_MAX_CHARS = 256;
/** MAX_ARG_STRLEN: the kernel takes no longer argument or variable, independent of their sum. */
const ARGUMENT_MAX_BYTES = 128 * 1024 - 1;
const SHELLS = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"];

export function checkExecCall(value: unknown): ExecCall {
  if (typeof value !== "object" || value === null) throw invalid("body", "it is not an exec call");
  const { repeatable, command, hasStdin, ...options } = value as Record<string, unknown>;
  const { execId, cwd, env = {}, timeoutMs, keepStdinOpen, output, outputMaxBytes } = options;
  if (cwd !== undefined && typeof cwd !== "string") throw invalid("cwd", "it is not a path");
  return {
    execId: checkId(execId, "execId"),
    repeatable: repeatable === true,
    command: checkCommand(command),
    env: checkEnvironment(env),
    hasStdin: hasStdin === true,
    ...(keepStdinOpen === true && { keepStdinOpen }),
    ...(output === "hold" && { output }),
    ...(outputMaxBytes !== undefined && { outputMaxBytes: checkOutputMax(outputMaxBytes) }),
    ...(cwd !== undefined && { cwd: checkPath(cwd) }),
    ...(timeoutMs !== undefined && { timeoutMs: checkTimeout(timeoutMs) }),
  };
}

/** Checks a caller's id of an exec, a session or a terminal. */
export function checkId(id: unknown, field: string): string {
  if (typeof id === "string" && id !== "" && id.length <= ID_MAX_CHARS) return id;
  throw invalid(field, `it must have 1 to ${ID_MAX_CHARS} characters`);
}

export function checkTimeout(timeoutMs: unknown): number {
  if (typeof timeoutMs === "number" && Number.isFinite(timeoutMs) && timeoutMs >= 0) return timeoutMs;
  throw invalid("timeoutMs", "it is not a duration");
}

export function checkOutputMax(bytes: unknown): number {
  const max = SANDBOX_LIMITS.execOutputMaxBytes;
  if (typeof bytes === "number" && Number.isInteger(bytes) && bytes >= 1 && bytes <= max) return bytes;
  throw invalid("outputMaxBytes", `it is not a number of bytes from 1 to ${max}`);
}

/** The kernel reports a missing directory as a missing program, so the directory is checked first. */
export function checkDirectory(path: string): void {
  let isDirectory: boolean;
  try {
    isDirectory = statSync(path).isDirectory();
  } catch (error) {
    throw fileError(error, path);
  }
  if (!isDirectory) throw new SandlotError("not_a_directory", { path });
}

/** A string goes through a shell that reads no startup files; an array runs without one. */
export function programOf(command: string | readonly string[]): Program {
  if (typeof command === "string") return { ...shell(), args: [...shell().args, "-c", command] };
  const [file = "", ...args] = command;
  return { file, args };
}

/** The program with a prefix before it. */
export function prefixed(prefix: readonly string[], { file, args }: Program): Program {
  const [first, ...rest] = prefix;
  return first === undefined ? { file, args } : { file: first, args: [...rest, file, ...args] };
}

let foundShell: Program | undefined;

/** Bash where there is one, with arguments that keep it from reading startup files. */
export function shell(): Program {
  foundShell ??= findShell();
  return foundShell;
}

function findShell(): Program {
  const bash = SHELLS.find(isExecutable);
  // Bash takes a socket on stdin for a remote shell and would read ~/.bashrc.
  return bash === undefined ? { file: "/bin/sh", args: [] } : { file: bash, args: ["--norc"] };
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

export function checkCommand(command: unknown): string | readonly string[] {
  const parts = typeof command === "string" ? [command] : command;
  if (!Array.isArray(parts) || parts.length === 0 || parts.some((part) => typeof part !== "string"))
    throw invalid("command", "it must be a string, or a list of strings that is not empty");
  for (const part of parts as string[]) {
    if (part.includes("\0")) throw invalid("command", "it contains a NUL byte");
    if (part.length * 3 > ARGUMENT_MAX_BYTES && Buffer.byteLength(part) > ARGUMENT_MAX_BYTES)
      throw invalid("command", `an argument has more than ${ARGUMENT_MAX_BYTES} bytes; write it to a file instead`);
  }
  return command as string | readonly string[];
}

export function checkEnvironment(env: unknown): Readonly<Record<string, string>> {
  if (typeof env !== "object" || env === null || Array.isArray(env)) throw invalid("env", "it is not an object");
  for (const [name, value] of Object.entries(env)) {
    if (!ENV_NAME_PATTERN.test(name)) throw invalid("env", `${JSON.stringify(name)} is not the name of a variable`);
    if (typeof value !== "string") throw invalid("env", `the value of ${name} is not a string`);
    if (value.includes("\0")) throw invalid("env", `the value of ${name} contains a NUL byte`);
    if (Buffer.byteLength(value) + name.length + 1 > ARGUMENT_MAX_BYTES)
      throw invalid("env", `${name} has more than ${ARGUMENT_MAX_BYTES} bytes; write it to a file instead`);
  }
  return env as Readonly<Record<string, string>>;
}

function invalid(field: string, problem: string): SandlotError {
  return new SandlotError("invalid_request", { field, problem });
}
