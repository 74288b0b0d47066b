/**
 * The state of one shell: directory, variables, parameters. A subshell works on a copy, so nothing it does
 * reaches the shell that started it.
 */

import type { Machine, Process } from "../exec/machine.ts";
import { type FileTree, resolvePath } from "../files/tree.ts";

/** Ends the shell with a message, as a bad expression does. */
export class ShellError extends Error {
  override readonly name = "ShellError";
}

/** A jump out of nested commands. `count` is the status of `exit`, the levels of `break` and `continue`. */
export class Flow extends Error {
  override readonly name = "Flow";
  readonly kind: "exit" | "break" | "continue";
  readonly count: number;

  constructor(kind: Flow["kind"], count: number) {
    super(kind);
    this.kind = kind;
    this.count = count;
  }
}

/** Nesting of subshells, substitutions and scripts. Deeper is a runaway recursion. */
const DEPTH_MAX = 200;

export class ShellState {
  readonly process: Process;
  readonly #depth: number;
  /** The command of `trap … EXIT`. */
  exitTrap: string | null = null;
  cwd: string;
  variables: Map<string, string>;
  exported: Set<string>;
  positional: readonly string[] = [];
  /** `$0` */
  name = "sh";
  status = 0;
  /** The status of the last substitution in the present command. */
  substituted = 0;
  /** `$!` */
  lastBackground: Process | null = null;
  /** `$$`: that of the first shell, also in a subshell. */
  readonly shellPid: number;

  constructor(process: Process, cwd: string, environment: ReadonlyMap<string, string>, parent?: ShellState) {
    this.process = process;
    this.cwd = cwd;
    this.variables = new Map(environment);
    this.exported = new Set(environment.keys());
    this.shellPid = parent?.shellPid ?? process.pid;
    this.#depth = parent === undefined ? 1 : parent.#depth + 1;
    if (this.#depth > DEPTH_MAX) throw new ShellError("maximum nesting depth exceeded");
  }

  get machine(): Machine {
    return this.process.machine;
  }

  get tree(): FileTree {
    return this.machine.tree;
  }

  /** A copy for a subshell; with a process of its own for a background job. */
  fork(process: Process = this.process): ShellState {
    const copy = new ShellState(process, this.cwd, this.variables, this);
    copy.exported = new Set(this.exported);
    copy.positional = this.positional;
    copy.name = this.name;
    copy.status = this.status;
    copy.lastBackground = this.lastBackground;
    return copy;
  }

  resolve(path: string): string {
    return resolvePath(this.cwd, path);
  }

  /** The variables of a started command. */
  environment(): Map<string, string> {
    return new Map([...this.variables].filter(([name]) => this.exported.has(name)));
  }

  parameter(name: string): string | undefined {
    switch (name) {
      case "?":
        return String(this.status);
      case "$":
        return String(this.shellPid);
      case "!":
        return this.lastBackground === null ? "" : String(this.lastBackground.pid);
      case "#":
        return String(this.positional.length);
      case "@":
      case "*":
        return this.positional.length === 0 ? undefined : this.positional.join(" ");
      case "0":
        return this.name;
      case "PWD":
        return this.cwd;
      default:
        return /^[0-9]+$/.test(name) ? this.positional[Number(name) - 1] : this.variables.get(name);
    }
  }

  assign(name: string, value: string): void {
    this.variables.set(name, value);
  }
}
