/**
 * What the shell's parser makes of a script.
 */

export type WordPart =
  /** `quoted` text is neither split nor expanded. */
  | { readonly type: "text"; readonly text: string; readonly quoted: boolean }
  | ParameterPart
  | { readonly type: "substitution"; readonly script: List; readonly quoted: boolean }
  | { readonly type: "arithmetic"; readonly expression: Word; readonly quoted: boolean };

export interface ParameterPart {
  readonly type: "parameter";
  readonly name: string;
  readonly quoted: boolean;
  /** `${#name}` is `length`; the others stand between the name and `argument`, as in `${name:-argument}`. */
  readonly operator: ParameterOperator | null;
  readonly argument: Word;
}

export type ParameterOperator = "length" | ":-" | "-" | ":=" | "=" | ":+" | "+" | ":?" | "?" | "#" | "##" | "%" | "%%";

export type Word = readonly WordPart[];

export interface Redirect {
  /** `both` is `&>`. */
  readonly fd: 0 | 1 | 2 | "both";
  readonly operator: "<" | ">" | ">>" | ">&" | "<&" | "<<";
  /** For `<<` the text itself. */
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
  /** Without `in`, `words` is `null`: the positional parameters. */
  | { readonly type: "for"; readonly name: string; readonly words: readonly Word[] | null; readonly body: List }
  | {
      readonly type: "case";
      readonly subject: Word;
      readonly arms: readonly { readonly patterns: readonly Word[]; readonly body: List }[];
    }
  | { readonly type: "function"; readonly name: string; readonly body: Command };

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
