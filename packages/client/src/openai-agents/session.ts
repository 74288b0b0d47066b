/**
 * One run's sandbox for the OpenAI Agents SDK: commands that go on in the background when they take long, files,
 * patches.
 *
 * Invariants
 * - Paths are absolute or below the workspace. A failure inside the sandbox is reported to the model; it ends nothing.
 * - Ending the session, by any method of the SDK, releases the lease, once.
 */

import { applyDiff, type Editor, type ToolOutputImage } from "@openai/agents";
import type {
  ExecCommandArgs,
  ListDirectoryArgs,
  MaterializeEntryArgs,
  ReadFileArgs,
  SandboxDirectoryEntry,
  SandboxExecResult,
  SandboxSession,
  ViewImageArgs,
  WriteStdinArgs,
} from "@openai/agents/sandbox";
import { DEFAULT_CWD, isSandlotError, type Sandbox, SandlotError } from "@sandlot/contract";
import { TOOL_LIMITS } from "../tools/limits.ts";
import { behindLinks } from "../tools/links.ts";
import { absolutePath } from "../tools/paths.ts";
import { decodeText, imageTypeOf } from "../tools/read-tool.ts";
import type { SandboxRun } from "../tools/run.ts";
import type { SandlotSessionState } from "./client.ts";
import { inWords, RunningCommands } from "./commands.ts";
import { writeEntry, writeManifest } from "./manifest-files.ts";

export class SandlotSandboxSession implements SandboxSession<SandlotSessionState> {
  state: SandlotSessionState;
  readonly #run: SandboxRun;
  readonly #commands: RunningCommands;

  constructor(run: SandboxRun, state: SandlotSessionState) {
    this.state = state;
    this.#run = run;
    this.#commands = new RunningCommands(run);
  }

  /** Only a manifest with files needs the sandbox this early. */
  async start(): Promise<void> {
    const { manifest, workspaceReady } = this.state;
    if (!workspaceReady && Object.keys(manifest.entries).length > 0)
      await this.#run.use(({ files }) => writeManifest(files, manifest), { repeatable: true });
    this.state.workspaceReady = true;
  }

  async running(): Promise<boolean> {
    return !this.#run.isEnded() && this.state.workspaceReady === true;
  }

  stop(): Promise<void> {
    return this.#run.end();
  }

  close(): Promise<void> {
    return this.#run.end();
  }

  exec(args: ExecCommandArgs): Promise<SandboxExecResult> {
    refuseTerminal(args);
    refuseOther(args.runAs);
    const { environment = {} } = this.state;
    return this.#commands.start({ ...args, workdir: absolutePath(args.workdir ?? DEFAULT_CWD) }, environment);
  }

  execCommand(args: ExecCommandArgs): Promise<string> {
    return toldToModel(async () => inWords(await this.exec(args), this.#run.takeNotice()));
  }

  writeStdin(args: WriteStdinArgs): Promise<string> {
    return toldToModel(async () => inWords(await this.#commands.write(args), this.#run.takeNotice()));
  }

  /** Nothing is left to do after the run's end; for callers that run all steps in order. */
  async shutdown(): Promise<void> {
    await this.#run.end();
  }

  /** The fleet owns the thread's sandbox and files, and keeps them for the thread. */
  async delete(): Promise<void> {
    await this.#run.end();
  }

  /** Decides whether the model gets `write_stdin`, which reads and feeds running commands. */
  supportsPty(): boolean {
    return true;
  }

  createEditor(runAs?: string): Editor {
    refuseOther(runAs);
    return new SandboxEditor(this.#run);
  }

  async viewImage({ path, runAs }: ViewImageArgs): Promise<ToolOutputImage> {
    refuseOther(runAs);
    const bytes = await this.#read(({ files }) =>
      files.read(absolutePath(path), { length: TOOL_LIMITS.imageMaxBytes + 1 }),
    );
    const mediaType = imageTypeOf(bytes);
    // The SDK recognises this text, and reports it to the model in its own.
    if (mediaType === null) throw new Error("unsupported image format");
    if (bytes.length > TOOL_LIMITS.imageMaxBytes) throw new Error("exceeded the allowed size");
    return { type: "image", image: { data: new Uint8Array(bytes), mediaType } };
  }

  async readFile({ path, maxBytes, runAs }: ReadFileArgs): Promise<Uint8Array> {
    refuseOther(runAs);
    const range = maxBytes === undefined ? {} : { length: maxBytes };
    return this.#read(({ files }) => files.read(absolutePath(path), range));
  }

  async listDir({ path, runAs }: ListDirectoryArgs): Promise<SandboxDirectoryEntry[]> {
    refuseOther(runAs);
    const { entries } = await this.#read(({ files }) => files.list(absolutePath(path)));
    return entries.map(({ path: entry, kind }) => ({
      name: entry.slice(entry.lastIndexOf("/") + 1),
      path: entry,
      type: kind === "directory" ? "dir" : kind === "file" ? "file" : "other",
    }));
  }

  async pathExists(path: string, runAs?: string): Promise<boolean> {
    refuseOther(runAs);
    return (await this.#kindOf(path)) !== null;
  }

  async directoryExists(path: string, runAs?: string): Promise<boolean> {
    refuseOther(runAs);
    return (await this.#kindOf(path)) === "directory";
  }

  async materializeEntry({ path, entry, runAs }: MaterializeEntryArgs): Promise<void> {
    refuseOther(runAs);
    await this.#run.use(({ files }) => writeEntry(files, path, entry));
  }

  async applyManifest(manifest: SandlotSessionState["manifest"], runAs?: string): Promise<void> {
    refuseOther(runAs);
    await this.#run.use(({ files }) => writeManifest(files, manifest));
  }

  async #kindOf(path: string): Promise<string | null> {
    try {
      const found = await this.#read(async (sandbox) =>
        sandbox.files.stat(await behindLinks(sandbox, absolutePath(path))),
      );
      return found.kind;
    } catch (error) {
      if (isSandlotError(error, "file_not_found")) return null;
      throw error;
    }
  }

  #read<T>(action: (sandbox: Sandbox) => Promise<T>): Promise<T> {
    return this.#run.use(action, { repeatable: true });
  }
}

/** Patches in the SDK's format, applied to the present content of the sandbox. */
class SandboxEditor implements Editor {
  readonly #run: SandboxRun;

  constructor(run: SandboxRun) {
    this.#run = run;
  }

  createFile({ path, diff }: Parameters<Editor["createFile"]>[0]) {
    return this.#edit(path, `Created ${path}`, async ({ files }) => {
      await files.write(absolutePath(path), applyDiff("", diff, "create"), { ifVersion: null });
    });
  }

  updateFile({ path, diff, moveTo }: Parameters<Editor["updateFile"]>[0]) {
    return this.#edit(path, `Updated ${path}`, async ({ files }) => {
      const from = absolutePath(path);
      const { version } = await files.stat(from);
      const text = decodeText(from, await files.read(from));
      await files.write(from, applyDiff(text, diff), { ifVersion: version });
      if (moveTo !== undefined) await files.rename(from, absolutePath(moveTo));
    });
  }

  deleteFile({ path }: Parameters<Editor["deleteFile"]>[0]) {
    return this.#edit(path, `Deleted ${path}`, async ({ files }) => files.remove(absolutePath(path)));
  }

  async #edit(path: string, done: string, action: (sandbox: Sandbox) => Promise<void>) {
    try {
      await this.#run.turns.run(absolutePath(path), () => this.#run.use(action));
      return { status: "completed" as const, output: done };
    } catch (error) {
      if (this.#run.isEnded() || !(error instanceof Error)) throw error;
      return { status: "failed" as const, output: error.message };
    }
  }
}

function refuseTerminal({ tty }: ExecCommandArgs): void {
  if (tty === true)
    throw new SandlotError("invalid_request", {
      field: "tty",
      problem: "there is no terminal here; run the command without one",
    });
}

function refuseOther(runAs: string | undefined): void {
  if (runAs !== undefined)
    throw new SandlotError("invalid_request", { field: "runAs", problem: "a sandbox has one user; leave it out" });
}

async function toldToModel(action: () => Promise<string>): Promise<string> {
  try {
    return await action();
  } catch (error) {
    if (isSandlotError(error) && error.code !== "lease_released") return `Error: ${error.message} ${error.remedy}`;
    throw error;
  }
}
