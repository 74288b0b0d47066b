/**
 * A process of a sandbox session: output as streams that are read at the reader's pace, and a writable input. Each
 * stream follows the command separately, so one can be read without the other.
 */

import { DEFAULT_CWD, type FollowEnd, type FollowEvent, SandlotError } from "@sandlot/contract";
import type { Experimental_SandboxProcess } from "ai";
import { exitCodeOf } from "../tools/exit-code.ts";
import { absolutePath } from "../tools/paths.ts";
import type { SandboxRun } from "../tools/run.ts";

interface SpawnOptions {
  readonly command: string;
  readonly workingDirectory?: string;
  readonly env?: Record<string, string>;
  readonly abortSignal?: AbortSignal;
  readonly stdin?: boolean;
}

export async function spawnProcess(run: SandboxRun, options: SpawnOptions): Promise<Experimental_SandboxProcess> {
  const { command, workingDirectory, env, abortSignal, stdin = false } = options;
  const { execId, pid } = await run.use(
    (sandbox) =>
      sandbox.spawn(command, {
        cwd: absolutePath(workingDirectory ?? DEFAULT_CWD),
        timeoutMs: 0,
        keepStdinOpen: stdin,
        ...(env === undefined ? {} : { env }),
      }),
    { signal: abortSignal },
  );
  const follow = () => run.stream(({ execs }) => execs.follow(execId));
  const kill = async () => {
    await run.use(({ execs }) => execs.kill(execId));
  };
  // An abort has no caller to report to; `wait` shows how the process ended.
  abortSignal?.addEventListener("abort", () => void kill().catch(() => undefined), { once: true });
  if (abortSignal?.aborted) await kill();
  return {
    ...(pid === null ? {} : { pid }),
    ...(stdin ? { stdin: inputOf(run, execId) } : {}),
    stdout: ReadableStream.from(bytesOf(follow(), "stdout")),
    stderr: ReadableStream.from(bytesOf(follow(), "stderr")),
    wait: async () => {
      const end = await endOf(follow());
      if (end.status !== "completed") abortSignal?.throwIfAborted();
      return { exitCode: exitCodeOf(end) };
    },
    kill,
  };
}

async function* bytesOf(events: AsyncIterable<FollowEvent>, stream: "stdout" | "stderr"): AsyncGenerator<Uint8Array> {
  for await (const event of events) {
    if (event.type === "end" || event.stream !== stream) continue;
    if (event.type === "output") yield event.bytes;
    else throw new SandlotError("internal", { problem: dropped(event.toOffset - event.fromOffset, stream) });
  }
}

function dropped(byteCount: number, stream: string): string {
  return `${byteCount} bytes of ${stream} were dropped because they were not read in time`;
}

async function endOf(events: AsyncIterable<FollowEvent>): Promise<FollowEnd> {
  for await (const event of events) if (event.type === "end") return event.end;
  throw new SandlotError("internal", { problem: "a followed command ended without saying so" });
}

function inputOf(run: SandboxRun, execId: string): WritableStream<Uint8Array> {
  const write = (bytes: Uint8Array, end: boolean) => run.use(({ execs }) => execs.writeStdin(execId, bytes, { end }));
  return new WritableStream({
    write: (chunk: Uint8Array) => write(chunk, false),
    close: () => write(new Uint8Array(), true),
  });
}
