/**
 * A sandbox whose paths are mapped at the edge: commands and file calls get the host's paths, results and errors get
 * the caller's paths back. Followed output is passed on unchanged, because its offsets count the written bytes.
 */

import {
  type ErrorCode,
  type ErrorDetails,
  type ExecOptions,
  type ExecResult,
  type FileStat,
  type OutputPart,
  type OutputSoFar,
  type Sandbox,
  type SandboxFiles,
  type SandboxSessions,
  type SandboxTerminals,
  SandlotError,
} from "@sandlot/contract";
import { overridden, SANDBOX_SHAPE } from "../../../backend/sandbox-shape.ts";
import type { Access, PathMap } from "./path-map.ts";

type Command = string | readonly string[];

export function mappedSandbox(inner: Sandbox, map: PathMap): Sandbox {
  const back = backwards(map);
  const command = (given: Command): Command =>
    typeof given === "string" ? map.textToHost(given) : given.map((part) => map.textToHost(part));
  const options = <Options extends Pick<ExecOptions, "cwd">>(given: Options | undefined): Options | undefined =>
    given?.cwd === undefined ? given : { ...given, cwd: map.toHost(given.cwd) };
  return overridden<Sandbox>(SANDBOX_SHAPE, inner, {
    exec: async (given, more) => resultOf(map, await back(() => inner.exec(command(given), options(more)))),
    spawn: (given, more) => back(() => inner.spawn(command(given), options(more))),
    files: mappedFiles(inner.files, map),
    sessions: mappedSessions(inner.sessions, map),
    terminals: mappedTerminals(inner.terminals, map),
  });
}

/** Lists every method: an unlisted one would use the host's paths. */
function mappedFiles(inner: SandboxFiles, map: PathMap): SandboxFiles {
  const back = backwards(map);
  /** Makes the call with the host's path; its result and error have the caller's path. */
  const at = <T>(path: string, access: Access, call: (host: string) => Promise<T>): Promise<T> =>
    back(async () => call(map.toHost(path, access)));
  const stream = <T>(path: string, call: (host: string) => AsyncIterable<T>, each: (item: T) => T = (item) => item) =>
    mappedStream(map, () => call(map.toHost(path)), each);
  const seen = (stat: FileStat): FileStat => ({ ...stat, path: map.toSeen(stat.path) });
  const writes: Access = { writes: true };
  const moves: Access = { writes: true, keepsLink: true };
  return {
    read: (path, range) => at(path, {}, (host) => inner.read(host, range)),
    readText: (path, more) => at(path, {}, (host) => inner.readText(host, more)),
    download: (path, range) => stream(path, (host) => inner.download(host, range)),
    write: (path, content, more) => at(path, writes, (host) => inner.write(host, content, more)),
    upload: (path, content, more) => at(path, writes, (host) => inner.upload(host, content, more)),
    append: (path, content) => at(path, writes, (host) => inner.append(host, content)),
    mkdir: (path) => at(path, writes, (host) => inner.mkdir(host)),
    rename: (from, to) => at(from, moves, (host) => inner.rename(host, map.toHost(to, moves))),
    remove: (path, more) => at(path, moves, (host) => inner.remove(host, more)),
    stat: async (path) => seen(await at(path, { keepsLink: true }, (host) => inner.stat(host))),
    list: async (path, more) => {
      const { entries, truncated } = await at(path, {}, (host) => inner.list(host, more));
      return { entries: entries.map(seen), truncated };
    },
    glob: async (path, pattern, more) => {
      const { paths, truncated } = await at(path, {}, (host) => inner.glob(host, pattern, more));
      return { paths: paths.map((found) => map.toSeen(found)), truncated };
    },
    grep: async (path, pattern, more) => {
      const result = await at(path, {}, (host) => inner.grep(host, pattern, more));
      return { ...result, matches: result.matches.map((match) => ({ ...match, path: map.toSeen(match.path) })) };
    },
    watch: (path, more) =>
      stream(
        path,
        (host) => inner.watch(host, more),
        (change) => ({ ...change, path: map.toSeen(change.path) }),
      ),
  };
}

function mappedSessions(inner: SandboxSessions, map: PathMap): SandboxSessions {
  const back = backwards(map);
  const seen = <T extends { readonly cwd: string }>(info: T): T => ({ ...info, cwd: map.toSeen(info.cwd) });
  return {
    open: async (more) => {
      const placed = more?.cwd === undefined ? more : { ...more, cwd: map.toHost(more.cwd) };
      return seen(await back(() => inner.open(placed)));
    },
    exec: async (id, command, more) =>
      seen(resultOf(map, await back(() => inner.exec(id, map.textToHost(command), more)))),
    output: async (id, more) => outputOf(map, await back(() => inner.output(id, more))),
    list: async () => (await back(() => inner.list())).map(seen),
    close: (id) => back(() => inner.close(id)),
  };
}

function mappedTerminals(inner: SandboxTerminals, map: PathMap): SandboxTerminals {
  const back = backwards(map);
  return {
    open: ({ cwd, command, ...more }) =>
      back(() =>
        inner.open({
          ...more,
          ...(cwd !== undefined && { cwd: map.toHost(cwd) }),
          ...(command !== undefined && { command: command.map((part) => map.textToHost(part)) }),
        }),
      ),
    attach: (id, more) => back(() => inner.attach(id, more)),
    list: () => back(() => inner.list()),
    close: (id) => back(() => inner.close(id)),
  };
}

function resultOf<Result extends ExecResult>(map: PathMap, result: Result): Result {
  return { ...result, stdout: map.textToSeen(result.stdout), stderr: map.textToSeen(result.stderr) };
}

/** Offsets count the bytes that were printed. */
function outputOf(map: PathMap, output: OutputSoFar): OutputSoFar {
  const seen = (part: OutputPart): OutputPart => ({ ...part, text: map.textToSeen(part.text) });
  return { ...output, stdout: seen(output.stdout), stderr: seen(output.stderr) };
}

function backwards(map: PathMap) {
  return async <T>(call: () => Promise<T>): Promise<T> => {
    try {
      return await call();
    } catch (error) {
      throw seenError(map, error);
    }
  };
}

async function* mappedStream<T>(map: PathMap, call: () => AsyncIterable<T>, each: (item: T) => T): AsyncGenerator<T> {
  try {
    for await (const item of call()) yield each(item);
  } catch (error) {
    throw seenError(map, error);
  }
}

function seenError(map: PathMap, error: unknown): unknown {
  if (!(error instanceof SandlotError)) return error;
  const details = Object.fromEntries(
    Object.entries(error.details).map(([key, value]) => [
      key,
      typeof value === "string" ? map.textToSeen(value) : value,
    ]),
  );
  return new SandlotError(error.code, details as unknown as ErrorDetails[ErrorCode], { cause: error });
}
