/**
 * A sandbox every use of which goes through a passage: the place where a lease or a slot is asked whether it still
 * stands. Nothing else is decided here.
 *
 * Its parts are made when they are first asked for, because there is one of these for each lease.
 */

import { inspect } from "node:util";
import {
  type ExecOptions,
  type ExecResult,
  type Generation,
  type ProcessInfo,
  type ResourceUsage,
  type Sandbox,
  type SandboxExecs,
  type SandboxFiles,
  type SandboxId,
  type SandboxPorts,
  type SandboxSessions,
  type SandboxTerminals,
  type SpawnedExec,
  type SpawnOptions,
  type Terminal,
  withWorkspacePaths,
} from "@sandlot/contract";
import { isLive, liveExec } from "@sandlot/contract/live-exec";
import { tracedExec } from "../../observe/traced-exec.ts";
import { isTracing } from "../../observe/tracing.ts";

export interface Passage {
  /** Runs one use on the sandbox that is there now. */
  use<T>(use: (sandbox: Sandbox) => Promise<T>): Promise<T>;
  /** Passes a stream on, asking again before each piece. */
  stream<T>(open: (sandbox: Sandbox) => AsyncIterable<T>): AsyncIterable<T>;
  /** Throws when whoever holds this may not use it any more. */
  check(): void;
}

export abstract class CheckedSandbox implements Sandbox {
  readonly id: SandboxId;
  readonly generation: Generation;
  #execs: SandboxExecs | null = null;
  #files: SandboxFiles | null = null;
  #sessions: SandboxSessions | null = null;
  #terminals: SandboxTerminals | null = null;
  #ports: SandboxPorts | null = null;

  constructor(id: SandboxId, generation: Generation) {
    this.id = id;
    this.generation = generation;
  }

  /** What `console.log` shows: what it is, and nothing of how it is reached. */
  [inspect.custom](): string {
    return `Sandbox { id: '${this.id}', generation: ${this.generation} }`;
  }

  protected abstract readonly passage: Passage;

  exec(command: string | readonly string[], options?: ExecOptions): Promise<ExecResult> {
    const run = isLive(options)
      ? () => liveExec(this, command, options)
      : () => this.passage.use((sandbox) => sandbox.exec(command, options));
    return isTracing() ? tracedExec(this, run) : run();
  }

  spawn(command: string | readonly string[], options?: SpawnOptions): Promise<SpawnedExec> {
    return this.passage.use((sandbox) => sandbox.spawn(command, options));
  }

  processes(): Promise<readonly ProcessInfo[]> {
    return this.passage.use((sandbox) => sandbox.processes());
  }

  usage(): Promise<ResourceUsage> {
    return this.passage.use((sandbox) => sandbox.usage());
  }

  get execs(): SandboxExecs {
    this.#execs ??= new CheckedExecs(this.passage);
    return this.#execs;
  }

  get files(): SandboxFiles {
    this.#files ??= withWorkspacePaths(new CheckedFiles(this.passage));
    return this.#files;
  }

  get sessions(): SandboxSessions {
    this.#sessions ??= new CheckedSessions(this.passage);
    return this.#sessions;
  }

  get terminals(): SandboxTerminals {
    this.#terminals ??= new CheckedTerminals(this.passage);
    return this.#terminals;
  }

  get ports(): SandboxPorts {
    this.#ports ??= new CheckedPorts(this.passage);
    return this.#ports;
  }
}

type FilesArguments<Name extends keyof SandboxFiles> = Parameters<SandboxFiles[Name]>;
type ExecsArguments<Name extends keyof SandboxExecs> = Parameters<SandboxExecs[Name]>;
type SessionsArguments<Name extends keyof SandboxSessions> = Parameters<SandboxSessions[Name]>;
type TerminalsArguments<Name extends keyof SandboxTerminals> = Parameters<SandboxTerminals[Name]>;
type PortsArguments<Name extends keyof SandboxPorts> = Parameters<SandboxPorts[Name]>;

class CheckedFiles implements SandboxFiles {
  readonly #passage: Passage;

  constructor(passage: Passage) {
    this.#passage = passage;
  }

  read(...args: FilesArguments<"read">) {
    return this.#passage.use(({ files }) => files.read(...args));
  }
  readText(...args: FilesArguments<"readText">) {
    return this.#passage.use(({ files }) => files.readText(...args));
  }
  download(...args: FilesArguments<"download">) {
    return this.#passage.stream(({ files }) => files.download(...args));
  }
  write(...args: FilesArguments<"write">) {
    return this.#passage.use(({ files }) => files.write(...args));
  }
  upload(...args: FilesArguments<"upload">) {
    return this.#passage.use(({ files }) => files.upload(...args));
  }
  append(...args: FilesArguments<"append">) {
    return this.#passage.use(({ files }) => files.append(...args));
  }
  mkdir(...args: FilesArguments<"mkdir">) {
    return this.#passage.use(({ files }) => files.mkdir(...args));
  }
  rename(...args: FilesArguments<"rename">) {
    return this.#passage.use(({ files }) => files.rename(...args));
  }
  remove(...args: FilesArguments<"remove">) {
    return this.#passage.use(({ files }) => files.remove(...args));
  }
  stat(...args: FilesArguments<"stat">) {
    return this.#passage.use(({ files }) => files.stat(...args));
  }
  list(...args: FilesArguments<"list">) {
    return this.#passage.use(({ files }) => files.list(...args));
  }
  glob(...args: FilesArguments<"glob">) {
    return this.#passage.use(({ files }) => files.glob(...args));
  }
  grep(...args: FilesArguments<"grep">) {
    return this.#passage.use(({ files }) => files.grep(...args));
  }
  watch(...args: FilesArguments<"watch">) {
    return this.#passage.stream(({ files }) => files.watch(...args));
  }
}

class CheckedExecs implements SandboxExecs {
  readonly #passage: Passage;

  constructor(passage: Passage) {
    this.#passage = passage;
  }

  list() {
    return this.#passage.use(({ execs }) => execs.list());
  }
  follow(...args: ExecsArguments<"follow">) {
    return this.#passage.stream(({ execs }) => execs.follow(...args));
  }
  output(...args: ExecsArguments<"output">) {
    return this.#passage.use(({ execs }) => execs.output(...args));
  }
  signal(...args: ExecsArguments<"signal">) {
    return this.#passage.use(({ execs }) => execs.signal(...args));
  }
  kill(...args: ExecsArguments<"kill">) {
    return this.#passage.use(({ execs }) => execs.kill(...args));
  }
  writeStdin(...args: ExecsArguments<"writeStdin">) {
    return this.#passage.use(({ execs }) => execs.writeStdin(...args));
  }
  waitForOutput(...args: ExecsArguments<"waitForOutput">) {
    return this.#passage.use(({ execs }) => execs.waitForOutput(...args));
  }
}

class CheckedSessions implements SandboxSessions {
  readonly #passage: Passage;

  constructor(passage: Passage) {
    this.#passage = passage;
  }

  open(...args: SessionsArguments<"open">) {
    return this.#passage.use(({ sessions }) => sessions.open(...args));
  }
  exec(...args: SessionsArguments<"exec">) {
    return this.#passage.use(({ sessions }) => sessions.exec(...args));
  }
  output(...args: SessionsArguments<"output">) {
    return this.#passage.use(({ sessions }) => sessions.output(...args));
  }
  list() {
    return this.#passage.use(({ sessions }) => sessions.list());
  }
  close(...args: SessionsArguments<"close">) {
    return this.#passage.use(({ sessions }) => sessions.close(...args));
  }
}

class CheckedPorts implements SandboxPorts {
  readonly #passage: Passage;

  constructor(passage: Passage) {
    this.#passage = passage;
  }

  list() {
    return this.#passage.use(({ ports }) => ports.list());
  }
  waitFor(...args: PortsArguments<"waitFor">) {
    return this.#passage.use(({ ports }) => ports.waitFor(...args));
  }
}

class CheckedTerminals implements SandboxTerminals {
  readonly #passage: Passage;

  constructor(passage: Passage) {
    this.#passage = passage;
  }

  open(...args: TerminalsArguments<"open">) {
    return this.#opened(({ terminals }) => terminals.open(...args));
  }
  attach(...args: TerminalsArguments<"attach">) {
    return this.#opened(({ terminals }) => terminals.attach(...args));
  }
  list() {
    return this.#passage.use(({ terminals }) => terminals.list());
  }
  close(...args: TerminalsArguments<"close">) {
    return this.#passage.use(({ terminals }) => terminals.close(...args));
  }

  async #opened(open: (sandbox: Sandbox) => Promise<Terminal>): Promise<Terminal> {
    const passage = this.#passage;
    const terminal = await passage.use(open);
    return {
      terminalId: terminal.terminalId,
      output: passage.stream(() => terminal.output),
      ended: terminal.ended,
      write: (content) => {
        passage.check();
        terminal.write(content);
      },
      resize: (columns, rows) => {
        passage.check();
        terminal.resize(columns, rows);
      },
      detach: () => terminal.detach(),
    };
  }
}
