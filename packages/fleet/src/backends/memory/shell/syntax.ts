/**
 * The parser's output for a script.
 */

export type WordPart =
  /** `quoted` text is neither split nor expanded. */
  | { readonly type: "text"; readonly text: string; readonly quoted: boolean }
  | { readonly type: "parameter"; readonly name: string; readonly quoted: boolean }
  | { readonly type: "substitution"; readonly script: List; readonly quoted: boolean }
  | { readonly type: "arithmetic"; readonly expression: Word; readonly quoted: boolean };

export type Word = readonly WordPart[];

export interface Redirect {
  readonly fd: 0 | 1 | 2;
  readonly operator: "<" | ">" | ">>" | ">&";
  readonly target: Word;
}

export interface Assignment {
  readonly name: string;
  readonly value: Word;
}

export type Command = { readonly redirects: readonly Redirect[] } & CommandBody;

export type CommandBody =
  | { readonly type: "simple"; readonly assignments: readonly Assignment[]; readonly words: readonly Word[] }
  | { readonly type: "group" | "subshell"; readonly body: List }
  | {
      readonly type: "if";
      readonly branches: readonly { readonly condition: List; readonly body: List }[];
      readonly otherwise: List;
    }
  | { readonly type: "while" | "until"; readonly condition: List; readonly body: List }
  | { readonly type: "for"; readonly name: string; readonly words: readonly Word[]; readonly body: List };

export interface Pipeline {
  readonly negated: boolean;
  readonly commands: readonly Command[];
}

export interface AndOr {
  readonly first: Pipeline;
  readonly rest: readonly { readonly operator: "&&" | "||"; readonly pipeline: Pipeline }[];
  readonly background: boolean;
}

export type List = readonly AndOr[];

export class ShellSyntaxError extends Error {
  override readonly name = "ShellSyntaxError";
}

/**
 * A construct, a command or an option that this shell does not support. It fails, and never does something else
 * instead.
 */
export class Unsupported extends Error {
  override readonly name = "Unsupported";

  constructor(what: string) {
    super(`sandlot memory shell: not supported: ${what}`);
  }
}
