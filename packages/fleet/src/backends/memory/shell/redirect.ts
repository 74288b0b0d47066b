/**
 * Redirections: where a command's streams lead. They are applied from left to right, so `>file 2>&1` and `2>&1 >file`
 * differ as they do everywhere.
 */

import { SandlotError } from "@sandlot/contract";
import { NULL_SINK, type Sink, Source, type Streams } from "../exec/streams.ts";
import { appendBytes, bytesOf, setBytes } from "../files/node.ts";
import type { Expander } from "./expand.ts";
import type { ShellState } from "./state.ts";
import { type Redirect, Unsupported } from "./syntax.ts";

export async function redirected(
  state: ShellState,
  streams: Streams,
  redirects: readonly Redirect[],
  expander: Expander,
): Promise<Streams> {
  let result = streams;
  for (const redirect of redirects) {
    const target = await expander.text(redirect.target);
    result = { ...result, ...one(state, result, redirect, target) };
  }
  return result;
}

function one(state: ShellState, streams: Streams, { fd, operator }: Redirect, target: string): Partial<Streams> {
  switch (operator) {
    case "<":
      if (fd !== 0) throw new Unsupported(`the redirection ${fd}<`);
      return { stdin: openSource(state, target, streams.stdin) };
    case ">&":
      if (target !== "1" && target !== "2") throw new Unsupported(`the redirection >&${target}`);
      return output(fd, target === "1" ? streams.stdout : streams.stderr);
    case ">":
    case ">>":
      return output(fd, openSink(state, target, operator === ">>", streams));
  }
}

function output(fd: Redirect["fd"], sink: Sink): Partial<Streams> {
  if (fd === 0) throw new Unsupported("the redirection 0>");
  return fd === 2 ? { stderr: sink } : { stdout: sink };
}

/** Reads the file as it is when each chunk is taken, so a loop that appends to its own input sees it grow. */
export function openSource(state: ShellState, target: string, stdin: Source): Source {
  if (target === "/dev/stdin") return stdin;
  const path = state.resolve(target);
  const node = state.tree.get(path);
  if (node.kind === "directory") throw new SandlotError("is_a_directory", { path: target });
  if (node.kind === "device") return node.device === "zero" ? Source.zeros() : Source.empty();
  if (node.kind !== "file") return Source.empty();
  let at = 0;
  return new Source(async () => {
    const chunk = bytesOf(node).slice(at, at + 64 * 1024);
    at += chunk.length;
    return chunk.length === 0 ? null : chunk;
  });
}

export function openSink(state: ShellState, target: string, append: boolean, streams: Streams): Sink {
  if (target === "/dev/stdout") return streams.stdout;
  if (target === "/dev/stderr") return streams.stderr;
  const now = () => state.machine.world.wallMs();
  const file = state.tree.open(state.resolve(target));
  if (file === null) return NULL_SINK;
  if (!append) setBytes(file, new Uint8Array(0), now());
  return {
    write: async (chunk) => appendBytes(file, chunk, now(), target),
  };
}
