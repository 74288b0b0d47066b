/**
 * The tools of one run, and the one place that parses arguments, applies policies, renders errors, redacts secrets and
 * moves long output to files.
 *
 *   parse → audit → the tool → (error → text) → notice of a replaced sandbox → redact → budget
 *
 * Invariants
 * - `call` rejects only when it is aborted, when the run is over, or when there is a bug. Everything else is an output.
 * - Every text that leaves, and every file we write, was redacted before.
 */

import { isSandlotError, SANDBOX_LIMITS, type SandboxAbout, SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { SHOWN } from "../shown.ts";
import { BackgroundCommands } from "./background-commands.ts";
import { bashOutputTool, bashTool, bashToolFor, NO_SUDO } from "./bash-tool.ts";
import { TOOL_LIMITS, TOOL_RESULTS_DIRECTORY } from "./limits.ts";
import type { OutputListener } from "./live-output.ts";
import { noticeInWords } from "./notice.ts";
import { type AuditEntry, auditCommand } from "./policy/command-audit.ts";
import { scrubEnvironment } from "./policy/environment.ts";
import { Redactor } from "./policy/redaction.ts";
import { ReadMarks } from "./read-marks.ts";
import { readFileTool } from "./read-tool.ts";
import { type RunOptions, SandboxRun } from "./run.ts";
import { globTool, grepTool, lsTool } from "./search-tools.ts";
import { RunShell } from "./shell.ts";
import type { SandboxSource } from "./source.ts";
import { countLines, headOf, tailOf } from "./text.ts";
import { type SandboxTool, type ToolAnswer, type ToolOutput, ToolRefusal } from "./tool.ts";
import { undoLastTurnTool } from "./undo-tool.ts";
import { listUploadedFilesTool, presentFilesTool } from "./user-file-tools.ts";
import { anySignal } from "./waiting.ts";
import { strReplaceTool, writeFileTool } from "./write-tools.ts";

/** Every tool, in the order that models see. `bash_output` follows `bash` where `replyWithinMs` is given. */
export const SANDBOX_TOOLS = [
  bashTool,
  lsTool,
  globTool,
  grepTool,
  readFileTool,
  writeFileTool,
  strReplaceTool,
  presentFilesTool,
  listUploadedFilesTool,
] as unknown as readonly SandboxTool[];

/** Off unless they are named: each changes more than the run itself. */
export const OPTIONAL_TOOLS = [undoLastTurnTool] as unknown as readonly SandboxTool[];

/** The named tools, in the order that models see. Absent names: all that are not optional. */
export function toolsNamed(names: readonly string[] | undefined): readonly SandboxTool[] {
  const usual = SANDBOX_TOOLS.filter(({ name }) => names === undefined || names.includes(name));
  return [...usual, ...OPTIONAL_TOOLS.filter(({ name }) => names?.includes(name) === true)];
}

type Secrets = Readonly<Record<string, string>>;

export interface ToolPolicy {
  /** Variables of every command. Names that look like credentials are dropped. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Variables with secret values, or a function that returns them. Their values are redacted from every output. */
  readonly secrets?: Secrets | (() => Secrets | Promise<Secrets>);
  /** `enforce` (default) blocks and warns, `report` only calls `onAudit`, `off` does neither. */
  readonly audit?: "enforce" | "report" | "off";
  readonly onAudit?: (entry: AuditEntry) => void;
  /** Default `true`. */
  readonly readBeforeWrite?: boolean;
  /** Default `true`. */
  readonly redact?: boolean;
  /** Default `TOOL_LIMITS.outputBudgetChars`. */
  readonly outputBudgetChars?: number;
  /** How many characters `read_file` shows at a time. Default `TOOL_LIMITS.readMaxChars`. */
  readonly readMaxChars?: number;
  /** How many entries `ls` shows. Default `TOOL_LIMITS.listMaxEntries`. */
  readonly listMaxEntries?: number;
  /** For a command without its own limit. Default `SANDBOX_LIMITS.execTimeoutMs`. */
  readonly commandTimeoutMs?: number;
  /**
   * A command that takes longer goes on in the background: the result has an id, and the tool `bash_output` shows the
   * command's result later. For a caller that gives up on long calls. Default: a call waits for the end.
   */
  readonly replyWithinMs?: number;
}

export interface ToolBoxOptions extends RunOptions, ToolPolicy {
  /** The names of the tools. Default all but the optional ones (`OPTIONAL_TOOLS`). */
  readonly tools?: readonly string[];
  /** The start directory of the shell, and the base of relative paths. Default `/mnt/user-data/workspace`. */
  readonly workingDirectory?: string;
}

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  /** Receives a command's output while the call waits, without secrets. If it throws, the command and the call end. */
  readonly onOutput?: OutputListener | undefined;
}

export class ToolBox implements AsyncDisposable {
  readonly run: SandboxRun;
  readonly tools: readonly SandboxTool[];
  /** Facts about the sandbox that are known before there is one. */
  readonly about: SandboxAbout | undefined;
  readonly #commandTimeoutMs: number;
  readonly #options: ToolBoxOptions;
  readonly #shell: RunShell;
  readonly #commands: BackgroundCommands;
  readonly #marks: ReadMarks;
  readonly #environment: Readonly<Record<string, string>>;
  /** Every value ever given: a replaced token may still be in a file. */
  readonly #secretValues = new Set<string>();
  #redactor = new Redactor([]);

  constructor(source: SandboxSource, options: ToolBoxOptions) {
    const { user = "", thread, tools, readBeforeWrite = true, environment = {} } = options;
    checkLimits(options);
    this.run = new SandboxRun(source, options);
    this.about = source.about?.(options.blueprint);
    const { outputBudgetChars = TOOL_LIMITS.outputBudgetChars } = options;
    this.#commandTimeoutMs = options.commandTimeoutMs ?? SANDBOX_LIMITS.execTimeoutMs;
    const { replyWithinMs } = options;
    const limits = { timeoutMs: this.#commandTimeoutMs, outputBudgetChars, replyWithinMs };
    const bash = [
      bashToolFor({ about: this.about, ...limits }),
      ...(replyWithinMs === undefined ? [] : [bashOutputTool]),
    ];
    this.tools = toolsNamed(tools).flatMap((tool) =>
      tool.name === bashTool.name ? (bash as unknown as SandboxTool[]) : [tool],
    );
    this.#commands = new BackgroundCommands(this.run.ending);
    this.#options = options;
    this.#shell = new RunShell(this.run, options.workingDirectory);
    this.#marks = new ReadMarks({ source, user, thread, required: readBeforeWrite });
    this.#environment = scrubEnvironment(environment);
  }

  /** What `console.log` shows: the thread, and the tools. */
  [SHOWN](): string {
    const names = this.tools.map(({ name }) => name).join(", ");
    return `ToolBox { thread: ${JSON.stringify(this.#options.thread)}, tools: ${names} }`;
  }

  async call(name: string, input: unknown, options: CallOptions = {}): Promise<ToolOutput> {
    const tool = this.tools.find((candidate) => candidate.name === name);
    // Running calls end with the run.
    const signal = anySignal(options.signal, this.#options.signal, this.run.ending);
    signal?.throwIfAborted();
    let answer: ToolAnswer;
    let isError = false;
    try {
      if (tool === undefined) throw new ToolRefusal("unknown_tool", `There is no tool ${name}.`);
      answer = await this.#run(tool, input, signal, options.onOutput);
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      answer = inWords(error);
      isError = true;
    }
    return this.#output(tool, answer, isError, signal);
  }

  /** Redacts this run's secrets from a text, also when no call has requested them yet. */
  async redacted(text: string): Promise<string> {
    await this.#secrets(false);
    return this.redact(text);
  }

  /** Redacts the secrets known so far from a text. */
  redact(text: string): string {
    return (this.#options.redact ?? true) ? this.#redactor.redact(text) : text;
  }

  /** Ends the run and releases its lease. */
  end(): Promise<void> {
    return this.run.end();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.end();
  }

  async #run(
    tool: SandboxTool,
    input: unknown,
    signal: AbortSignal | undefined,
    onOutput: CallOptions["onOutput"],
  ): Promise<ToolAnswer> {
    const parsed = tool.input.safeParse(input);
    if (!parsed.success) throw new ToolRefusal("invalid_arguments", z.prettifyError(parsed.error));
    const secrets = await this.#secrets(tool.name === bashTool.name);
    const warning = tool.name === bashTool.name ? this.#audit(String(parsed.data.command)) : null;
    const answer = await tool.run(parsed.data, {
      run: this.run,
      shell: this.#shell,
      commands: this.#commands,
      workingDirectory: this.#options.workingDirectory,
      marks: this.#marks,
      environment: { ...this.#environment, ...secrets },
      signal,
      about: this.about,
      commandTimeoutMs: this.#commandTimeoutMs,
      replyWithinMs: this.#options.replyWithinMs,
      readMaxChars: this.#options.readMaxChars ?? TOOL_LIMITS.readMaxChars,
      listMaxEntries: this.#options.listMaxEntries ?? TOOL_LIMITS.listMaxEntries,
      hasSecrets: (this.#options.redact ?? true) && !this.#redactor.isIdle(),
      onOutput,
      redacting: () => ((this.#options.redact ?? true) ? this.#redactor : new Redactor([])).stream(),
      redact: (text) => this.redact(text),
      redactEnd: (text) => ((this.#options.redact ?? true) ? this.#redactor.redactEnd(text) : text),
    });
    // A missing sudo needs no further warning.
    if (warning === null || NO_SUDO.test(answer.text)) return answer;
    return { ...answer, text: `${answer.text}\n${warning}` };
  }

  /** A read-only call works without the present secrets; earlier ones are known. */
  async #secrets(needed: boolean): Promise<Secrets> {
    const { secrets = {} } = this.#options;
    const asked = async () => (typeof secrets === "function" ? secrets() : secrets);
    // The provider of the secrets reports its failure: the reason may contain a secret.
    const values = await asked().catch((): null => null);
    if (values === null) {
      if (!needed) return {};
      throw new ToolRefusal(
        "secrets_unavailable",
        "The secrets that commands get could not be had, so the command was not run. Try again later.",
      );
    }
    const known = this.#secretValues.size;
    for (const value of Object.values(values)) this.#secretValues.add(value);
    if (this.#secretValues.size > known) this.#redactor = new Redactor(this.#secretValues);
    return values;
  }

  /** Throws for a blocked command; returns the warning to add. */
  #audit(command: string): string | null {
    const { audit = "enforce", onAudit, thread } = this.#options;
    if (audit === "off") return null;
    const finding = auditCommand(command);
    onAudit?.({ ...finding, thread, command: this.redact(command) });
    if (audit === "report" || finding.verdict === "pass") return null;
    if (finding.verdict === "warn")
      return `[warning: this command ${finding.reason}. Make sure that this is what was asked for.]`;
    const problem = finding.rule === "malformed" ? finding.reason : `it ${finding.reason}`;
    throw new ToolRefusal("command_blocked", `Command blocked: ${problem}. Please use a safer alternative approach.`);
  }

  async #output(tool: SandboxTool | undefined, answer: ToolAnswer, isError: boolean, signal: AbortSignal | undefined) {
    const notice = this.run.takeNotice();
    const text = this.redact(answer.text);
    const shown = tool === undefined || tool.ownLimit ? text : await this.#withinBudget(tool.name, text, signal);
    return {
      text: notice === null ? shown : `${noticeInWords(notice)}\n${shown}`,
      images: answer.images ?? [],
      facts: this.#redactFacts(answer.facts ?? {}),
      isError: isError || (answer.isFailure ?? answer.code !== undefined),
      code: answer.code ?? null,
    };
  }

  #redactFacts(facts: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
    const redacted = (value: unknown): unknown => {
      if (typeof value === "string") return this.redact(value);
      if (Array.isArray(value)) return value.map(redacted);
      if (typeof value !== "object" || value === null) return value;
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, redacted(inner)]));
    };
    return redacted(facts) as Readonly<Record<string, unknown>>;
  }

  /** Long output goes to a file that the agent can read; the shown text says so. */
  async #withinBudget(name: string, text: string, signal: AbortSignal | undefined): Promise<string> {
    const budget = this.#options.outputBudgetChars ?? TOOL_LIMITS.outputBudgetChars;
    if (text.length <= budget) return text;
    const path = `${TOOL_RESULTS_DIRECTORY}/${name}-${crypto.randomUUID().replaceAll("-", "").slice(0, 12)}.log`;
    const head = headOf(text, Math.min(TOOL_LIMITS.synopsisHeadChars, Math.floor(budget * 0.7)));
    const tail = tailOf(text, Math.min(TOOL_LIMITS.synopsisTailChars, Math.floor(budget * 0.25)));
    const omitted = text.length - head.length - tail.length;
    const where = await this.run
      .use((sandbox) => sandbox.files.write(path, text), { signal })
      .then(() => `All ${countLines(text)} lines are in ${path}; ${waysToRead(text)}.`)
      .catch((error: unknown) => {
        if (!isSandlotError(error)) throw error;
        return `It could not be kept (${error.code}); run the command again with less output.`;
      });
    return `${head}\n\n[${omitted} of ${text.length} characters left out here. ${where}]\n\n${tail}`;
  }
}

/** Counts, each at least one, and at most what the sandbox returns. */
function checkLimits({ outputBudgetChars, readMaxChars, listMaxEntries }: ToolPolicy): void {
  for (const [field, value] of Object.entries({ outputBudgetChars, readMaxChars, listMaxEntries })) {
    const max = field === "listMaxEntries" ? SANDBOX_LIMITS.listMaxResults : Number.MAX_SAFE_INTEGER;
    if (value === undefined || (Number.isInteger(value) && value >= 1 && value <= max)) continue;
    throw new SandlotError("invalid_request", { field, problem: `it is a whole number from 1 to ${max}` });
  }
}

/** Only the commands that work on a file of that size. */
function waysToRead(text: string): string {
  const sizeBytes = new TextEncoder().encode(text).length;
  if (sizeBytes <= SANDBOX_LIMITS.grepFileMaxBytes)
    return "read them with read_file and a range, or search them with grep";
  const inBash = "search them with `grep` in bash";
  return sizeBytes <= TOOL_LIMITS.readFileMaxBytes
    ? `read them with read_file and a range, or ${inBash}`
    : `read them with \`sed -n '1,200p'\` in bash, or ${inBash}`;
}

/** The tools of one run over a fleet or a gateway's client. Dispose it, or `end()` it, when the run is over. */
export function sandlotTools(source: SandboxSource, options: ToolBoxOptions): ToolBox {
  return new ToolBox(source, options);
}

function inWords(error: unknown): ToolAnswer {
  if (error instanceof ToolRefusal) return { text: `Error: ${error.message}`, code: error.code };
  if (isSandlotError(error, "lease_released")) throw error;
  if (isSandlotError(error, "sandbox_lost")) return { text: lossInWords(error), code: error.code };
  if (isSandlotError(error)) return { text: `Error: ${error.message} ${error.remedy}`, code: error.code };
  throw error;
}

function lossInWords({ details }: SandlotError<"sandbox_lost">): string {
  return (
    `Error: The sandbox was lost while this call was under way (${details.reason}), so it is not known how far it got. ` +
    "The next call gets a new sandbox with the files below /mnt/user-data; look at what is there before you repeat this."
  );
}
