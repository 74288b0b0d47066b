/**
 * The dialect of regular expressions: the common part of ripgrep and Python's `re`, translated for JavaScript with its
 * flag `u`, under which an unknown escape is an error instead of a letter.
 *
 * Translated: `(?i)`, `(?m)`, `(?s)` at the beginning, `(?P<n>…)`, `(?P=n)`, `(?#…)`, `\A`, `\Z`, `\z`, `\a`,
 * `\UXXXXXXXX`, `\x{…}`, `{,n}`, `[[:alpha:]]`, a `]` that begins a class, escaped punctuation, and literal brackets.
 *
 * Invariant: a pattern has the same meaning here as there, or it is refused with a sentence that says what to write
 * instead. `\d`, `\w`, `\s` and `\b` are about ASCII, as with Python's `re.ASCII`.
 */

export interface Translated {
  readonly source: string;
  readonly flags: string;
}

/** Says what is wrong. The caller turns it into an error of the contract. */
class UnsupportedPattern extends Error {}

const POSIX: Readonly<Record<string, string>> = {
  ...{ alnum: "0-9A-Za-z", alpha: "A-Za-z", ascii: "\\x00-\\x7f", blank: " \\t", cntrl: "\\x00-\\x1f\\x7f" },
  ...{ digit: "0-9", graph: "!-~", lower: "a-z", print: " -~", punct: "!-\\/:-@\\[-`\\{-~", space: "\\t-\\r " },
  ...{ upper: "A-Z", word: "0-9A-Z_a-z", xdigit: "0-9A-Fa-f" },
};
/** Outside of a class. Regardless of the flag `m`, a text has one beginning and one end. */
const EDGES: Readonly<Record<string, string>> = { A: "(?<![\\s\\S])", Z: "(?![\\s\\S])", z: "(?![\\s\\S])" };
/** The same in all three languages. */
const SHARED = "dDsSwWbBfnrtv";
const SYNTAX = /[\\^$.*+?()[\]{}|/]/;
const QUANTIFIER = /^\{(\d*)(,?)(\d*)\}/;

export function translated(pattern: string, flags: string): Translated {
  return new Translation(pattern, flags).result();
}

class Translation {
  readonly #pattern: string;
  readonly #flags: Set<string>;
  #at = 0;
  #source = "";

  constructor(pattern: string, flags: string) {
    this.#pattern = pattern;
    this.#flags = new Set(`${flags}u`);
  }

  result(): Translated {
    this.#leadingFlags();
    while (this.#at < this.#pattern.length) this.#source += this.#next();
    return { source: this.#source, flags: [...this.#flags].join("") };
  }

  /** `(?i)` and `(?-i)` apply to the whole pattern, so they are allowed only at its beginning. */
  #leadingFlags(): void {
    for (let match = this.#take(/^\(\?([a-zA-Z]*)(?:-([a-z]+))?\)/); match !== null; ) {
      for (const flag of match[1] ?? "") this.#flag(flag, true);
      for (const flag of match[2] ?? "") this.#flag(flag, false);
      match = this.#take(/^\(\?([a-zA-Z]*)(?:-([a-z]+))?\)/);
    }
  }

  #flag(flag: string, isOn: boolean): void {
    if ("ims".includes(flag)) {
      if (isOn) this.#flags.add(flag);
      else this.#flags.delete(flag);
    } else if (flag === "x") throw new UnsupportedPattern("(?x) is not supported; leave out blanks and comments");
    // Python's `a` and `u` are the behaviour here anyway; the other flags change the meaning of characters.
    else if (!"au".includes(flag))
      throw new UnsupportedPattern(`(?${flag}) is not supported; of flags (?i), (?m) and (?s) are`);
  }

  #next(): string {
    const [character = ""] = this.#take(/^[\s\S]/u) ?? [];
    if (character === "\\") return this.#escape(false);
    if (character === "[") return this.#characterClass();
    if (character === "(") return this.#group();
    if (character === "{") return this.#brace();
    if (character === "}" || character === "]") return `\\${character}`;
    if ("*+?".includes(character)) this.#refusePossessive();
    return character;
  }

  #group(): string {
    if (this.#take(/^\?#[^)]*\)/) !== null) return "";
    const named = this.#take(/^\?P<(\w+)>/);
    if (named !== null) return `(?<${named[1]}>`;
    const again = this.#take(/^\?P=(\w+)\)/);
    if (again !== null) return `\\k<${again[1]}>`;
    const rest = this.#pattern.slice(this.#at);
    if (rest.startsWith("?("))
      throw new UnsupportedPattern("conditions, (?(1)…), are not supported; write the alternatives out");
    if (rest.startsWith("?>")) throw new UnsupportedPattern("atomic groups, (?>…), are not supported; write (?:…)");
    if (/^\?[a-zA-Z]*(?:-[a-z]+)?\)/.test(rest))
      throw new UnsupportedPattern("flags for all of a pattern, such as (?i), stand at its beginning");
    if (/^\?(?!:|=|!|<[=!\w]|[ims-]+:)/.test(rest))
      throw new UnsupportedPattern(`(${rest.slice(0, 2)}… is no group that is known here`);
    return "(";
  }

  /** A brace that is no quantifier is literal. */
  #brace(): string {
    const [all, least, comma, most] = QUANTIFIER.exec(`{${this.#pattern.slice(this.#at)}`) ?? [];
    if (all === undefined || (least === "" && most === "")) return "\\{";
    this.#at += all.length - 1;
    this.#refusePossessive();
    return `{${least === "" ? 0 : least}${comma}${most}}`;
  }

  /** After a quantifier: `?` makes it lazy, another `+` possessive. */
  #refusePossessive(): void {
    if (this.#pattern[this.#at] === "+")
      throw new UnsupportedPattern("possessive quantifiers, such as a++, are not supported; leave out the last +");
  }

  /** After the backslash. */
  #escape(inClass: boolean): string {
    const wide = this.#take(/^(?:U([0-9a-fA-F]{8})|[xu]\{([0-9a-fA-F]{1,8})\})/);
    if (wide !== null) return `\\u{${(wide[1] ?? wide[2] ?? "").replace(/^0+(?=.)/, "")}}`;
    const whole = this.#take(/^(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[pP]\{[^}]*\}|k<\w+>)/);
    if (whole !== null) return `\\${whole[0]}`;
    const number = this.#take(/^\d+/);
    if (number !== null) return numbered(number[0], inClass);
    const [character] = this.#take(/^[\s\S]/u) ?? [];
    if (character === undefined) throw new UnsupportedPattern("it ends with a backslash; write \\\\ for one");
    if (!inClass && EDGES[character] !== undefined) return EDGES[character];
    if (character === "a") return "\\x07";
    if (SHARED.includes(character) && !(inClass && character === "B")) return `\\${character}`;
    if (character === "<" || character === ">")
      throw new UnsupportedPattern(
        `\\${character} means two things; write ${character} for the character, \\b for the edge of a word`,
      );
    if (/[A-Za-z]/.test(character)) throw new UnsupportedPattern(`\\${character} is no escape that is known here`);
    return SYNTAX.test(character) || (inClass && character === "-") ? `\\${character}` : character;
  }

  /** After the opening bracket. */
  #characterClass(): string {
    let items = this.#take(/^\^/) === null ? "[" : "[^";
    // A bracket that comes first is literal.
    if (this.#take(/^\]/) !== null) items += "\\]";
    for (let endsWithClass = false; ; ) {
      const posix = this.#take(/^\[:(\^?)(\w+):\]/);
      const [character] = posix ?? this.#take(/^[\s\S]/u) ?? [];
      if (character === undefined) throw new UnsupportedPattern("a class, […], has no end; write \\[ for a bracket");
      if (character === "]") return `${items}]`;
      if (posix !== null) items += posixClass(posix[1] === "^", posix[2] ?? "");
      else if (character === "\\") items += this.#escape(true);
      else if ("&-~".includes(character) && this.#pattern[this.#at] === character)
        throw new UnsupportedPattern(
          `${character}${character} inside a class is not supported; write \\${character} for the character`,
        );
      // After `\w` or at the end there is no range.
      else if (character === "-" && (endsWithClass || this.#pattern[this.#at] === "]")) items += "\\-";
      else items += SYNTAX.test(character) ? `\\${character}` : character;
      endsWithClass = posix !== null || (character === "\\" && /\\[dDsSwW]$|\}$/.test(items));
    }
  }

  #take(expression: RegExp): RegExpExecArray | null {
    const match = expression.exec(this.#pattern.slice(this.#at));
    if (match !== null) this.#at += match[0].length;
    return match;
  }
}

/** A group that matched before, or a character by its number: one that begins with 0, or has three octal digits. */
function numbered(digits: string, inClass: boolean): string {
  const octal = /^(?:0[0-7]{0,2}|[0-3][0-7]{2})/.exec(digits)?.[0];
  if (octal === undefined && !inClass)
    return `\\${digits.slice(0, 2)}${digits.length > 2 ? `(?:)${digits.slice(2)}` : ""}`;
  if (octal === undefined) throw new UnsupportedPattern(`\\${digits} inside a class is no character`);
  return `\\x${Number.parseInt(octal, 8).toString(16).padStart(2, "0")}${digits.slice(octal.length)}`;
}

function posixClass(isNegated: boolean, name: string): string {
  const ranges = POSIX[name];
  if (ranges === undefined)
    throw new UnsupportedPattern(`[:${name}:] is no class; there are ${Object.keys(POSIX).join(", ")}`);
  if (isNegated) throw new UnsupportedPattern(`[:^${name}:] is not supported; negate the whole class, [^[:${name}:]]`);
  return ranges;
}
