/**
 * Enough of shell syntax to judge a command: where one command ends and the next begins, what is quoted, what is the
 * body of a here-document. It only parses; it never runs or expands anything. Unparsable text (an unclosed quote) is
 * returned whole.
 */

export interface SubCommand {
  /** Unchanged, without surrounding blanks. */
  readonly text: string;
  /** Whether its input is the previous command's output. */
  readonly piped: boolean;
}

/** The commands of a compound: split at `&&`, `||`, `;`, `&`, newline and `|`, outside quotes and here-documents. */
export function splitCommand(source: string): readonly SubCommand[] {
  return new Splitter(withoutHereDocuments(source)).split() ?? [{ text: source.trim(), piped: false }];
}

class Splitter {
  readonly #source: string;
  readonly #found: SubCommand[] = [];
  #start = 0;
  #piped = false;
  /** A parenthesis is open to the end: no need to search for others inside it. */
  #unclosed = false;

  constructor(source: string) {
    this.#source = source;
  }

  /** `null` for an unclosed quote. */
  split(): readonly SubCommand[] | null {
    const source = this.#source;
    for (let at = 0; at < source.length; at++) {
      const character = source[at];
      if (character === "\\") at += 1;
      else if (character === "'" || character === '"' || character === "`") {
        const end = closingQuote(source, at);
        if (end < 0) return null;
        at = end;
      } else if (character === "(") at = this.#skipSubstitution(at);
      else at = this.#separator(at);
    }
    this.#cut(source.length, 0, false);
    return this.#found;
  }

  /** `$(…)`, `<(…)` and `((…))` belong to their word; a plain `(` opens a list that is split as well. */
  #skipSubstitution(at: number): number {
    const before = this.#source[at - 1];
    const isArithmetic = this.#source[at + 1] === "(";
    if (before !== "$" && before !== "<" && before !== ">" && !isArithmetic) {
      this.#cut(at, 1, this.#piped);
      return at;
    }
    const end = this.#unclosed ? -1 : closingParenthesis(this.#source, at);
    this.#unclosed ||= end < 0;
    return end < 0 ? at : end;
  }

  #separator(at: number): number {
    const two = this.#source.slice(at, at + 2);
    const one = this.#source[at] as string;
    if (two === "&&" || two === "||" || two === "|&") {
      this.#cut(at, 2, two === "|&");
      return at + 1;
    }
    // `2>&1`, `&>file` and `>|file` are redirections.
    if (one === "&" && (this.#source[at - 1] === ">" || this.#source[at + 1] === ">")) return at;
    if (one === "|" && this.#source[at - 1] === ">") return at;
    if (one === ";" || one === "\n" || one === "&" || one === "|" || one === ")") this.#cut(at, 1, one === "|");
    return at;
  }

  #cut(end: number, separatorLength: number, nextIsPiped: boolean): void {
    const text = this.#source.slice(this.#start, end).trim();
    if (text !== "") this.#found.push({ text, piped: this.#piped });
    this.#start = end + separatorLength;
    this.#piped = nextIsPiped;
  }
}

/** The position of the closing quote for the one at `at`, or -1. */
function closingQuote(source: string, at: number): number {
  const quote = source[at] as string;
  for (let index = at + 1; index < source.length; index++) {
    if (source[index] === "\\" && quote !== "'") index += 1;
    else if (source[index] === quote) return index;
  }
  return -1;
}

function closingParenthesis(source: string, at: number): number {
  let depth = 0;
  for (let index = at; index < source.length; index++) {
    const character = source[index] as string;
    if (character === "\\") index += 1;
    else if (character === "'" || character === '"') {
      const end = closingQuote(source, index);
      if (end < 0) return -1;
      index = end;
    } else if (character === "(") depth += 1;
    else if (character === ")" && --depth === 0) return index;
  }
  return -1;
}

/** The bodies of here-documents are data. `<<` inside `((…))` is a shift, `<<<` is a here-string. */
export function withoutHereDocuments(source: string): string {
  const lines = source.split("\n");
  const kept: string[] = [];
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index] as string;
    kept.push(line);
    for (const { delimiter, indented } of hereDocuments(line)) {
      const end = lines.findIndex(
        (body, at) => at > index && (indented ? body.replace(/^\t+/, "") : body) === delimiter,
      );
      if (end < 0) return kept.join("\n");
      index = end;
    }
  }
  return kept.join("\n");
}

function hereDocuments(line: string): readonly { delimiter: string; indented: boolean }[] {
  const outside = line
    .replace(/\(\((?:[^()]|\([^()]*\))*\)\)/g, "")
    .replace(/<<<\s*/g, "")
    .replace(/\\./g, "");
  const found = [];
  for (const match of outside.matchAll(/<<(-?)\s*(?:'([^']+)'|"([^"]+)"|([A-Za-z0-9_]+))/g)) {
    if (insideQuotes(outside, match.index)) continue;
    found.push({ delimiter: match[2] ?? match[3] ?? match[4] ?? "", indented: match[1] === "-" });
  }
  return found;
}

function insideQuotes(line: string, at: number): boolean {
  let quote: string | null = null;
  for (const character of line.slice(0, at)) {
    if (quote === null && (character === "'" || character === '"')) quote = character;
    else if (character === quote) quote = null;
  }
  return quote !== null;
}
