/**
 * Removes the values of secrets from what a model sees.
 *
 * It finds: the value itself, with and without surrounding blanks; URL-escaped and JSON- or backslash-escaped, wholly
 * or in part; base64, ordinary and URL-safe, at all three alignments, wrapped into lines and escaped itself;
 * hexadecimal, in either case and with separators; reversed; each also when it arrives in pieces; and single lines of a
 * value that has several.
 *
 * It does not find anything else: another encoding, the numbered lines of a dump, a cipher, one character per line, a
 * value that a command itself sends away or writes to a file. Redaction keeps accidents out of transcripts. It is no
 * boundary; a secret that must not be inside at all is bound to its host at the egress proxy.
 */

/** Shorter values would blank out ordinary words. */
const REDACTION_MIN_CHARS = 8;
const REPLACEMENT = "[redacted]";
/** Shorter single lines of a key are too ordinary to hide. */
const LINE_MIN_CHARS = 16;
/** Characters that a hexadecimal dump may put between two bytes. */
const HEX_SEPARATORS_MAX = 3;

export class Redactor {
  readonly #pattern: RegExp | null;
  /** No form of a secret is longer than this. */
  readonly #longest: number;

  constructor(secrets: Iterable<string>) {
    const forms = [...new Set([...secrets].flatMap((secret) => [secret, secret.trim()]))]
      .filter((secret) => secret.length >= REDACTION_MIN_CHARS)
      .sort((a, b) => b.length - a.length)
      .flatMap((secret) => [...formsOf(secret)]);
    this.#pattern = forms.length === 0 ? null : new RegExp(forms.map(({ source }) => source).join("|"), "gu");
    this.#longest = Math.max(0, ...forms.map(({ maxChars }) => maxChars));
  }

  isIdle(): boolean {
    return this.#pattern === null;
  }

  redact(text: string): string {
    return this.#pattern === null ? text : text.replace(this.#pattern, REPLACEMENT);
  }

  /**
   * For a text whose beginning is missing: a secret may have been cut in two there, and half of one matches nothing. So
   * a possible rest of one is removed.
   */
  redactEnd(text: string): string {
    if (this.#pattern === null) return text;
    let from = Math.min(this.#longest - 1, text.length);
    for (const { index, 0: match } of text.matchAll(this.#pattern)) {
      if (index >= from) break;
      from = Math.max(from, index + match.length);
    }
    return this.redact(text.slice(from));
  }

  /** For output in pieces: a possible beginning of a secret is held back until it is decided. */
  stream(): RedactingStream {
    return new RedactingStream(this.#pattern, this.#longest);
  }
}

/** Shows in pieces exactly what `redact` would show of the whole. */
export class RedactingStream {
  readonly #pattern: RegExp | null;
  readonly #longest: number;
  #held = "";

  constructor(pattern: RegExp | null, longest: number) {
    this.#pattern = pattern;
    this.#longest = longest;
  }

  /** The text that may be shown after this piece. */
  push(piece: string): string {
    if (this.#pattern === null) return piece;
    this.#held += piece;
    // From here on an incomplete secret may have begun.
    return this.#show(Math.max(0, this.#held.length - (this.#longest - 1)));
  }

  /** The rest. */
  end(): string {
    return this.#show(this.#held.length);
  }

  #show(until: number): string {
    let shown = "";
    let from = 0;
    for (const match of this.#held.matchAll(this.#pattern ?? /$^/g)) {
      if (match.index >= until) break;
      shown += this.#held.slice(from, match.index) + REPLACEMENT;
      from = match.index + match[0].length;
    }
    const to = Math.max(from, until);
    shown += this.#held.slice(from, to);
    this.#held = this.#held.slice(to);
    return shown;
  }
}

interface Form {
  /** A regular expression. */
  readonly source: string;
  readonly maxChars: number;
}

function* formsOf(secret: string): Generator<Form> {
  yield escapable(secret);
  yield literal([...secret].reverse().join(""));
  const bytes = new TextEncoder().encode(secret);
  for (const alignment of [0, 1, 2]) yield base64(bytes, alignment);
  yield hexadecimal(bytes);
  const lines = secret.split(/\r?\n/).filter((line) => line.length >= LINE_MIN_CHARS && !line.startsWith("-----"));
  if (secret.includes("\n")) for (const line of lines) yield escapable(line);
}

function literal(text: string): Form {
  return { source: escapeRegExp(text), maxChars: text.length };
}

/** The text with each character plain, or as `%41`, `\u0041`, `\x41`, `\A` or (a space) `+`. */
function escapable(text: string): Form {
  let maxChars = 0;
  const source = [...text].map((character) => {
    const bytes = [...new TextEncoder().encode(character)];
    const percent = bytes.map((byte) => `%${anyCaseHex(byte)}`).join("");
    const byBytes = bytes.map((byte) => `\\\\{1,3}x${anyCaseHex(byte)}`).join("");
    const units = Array.from({ length: character.length }, (_, index) => character.charCodeAt(index));
    const unicode = units.map((unit) => `\\\\{1,3}u${anyCaseHex(unit >> 8)}${anyCaseHex(unit & 0xff)}`).join("");
    const short = SHORT_ESCAPES.get(character);
    maxChars += Math.max(8 * units.length, 6 * bytes.length);
    const forms = [`\\\\{0,3}${escapeRegExp(character)}`, percent, unicode, byBytes];
    if (short !== undefined) forms.push(`\\\\{1,3}${short}`);
    if (character === " ") forms.push("\\+");
    return `(?:${forms.join("|")})`;
  });
  return { source: source.join(""), maxChars };
}

const SHORT_ESCAPES = new Map([
  ["\n", "n"],
  ["\r", "r"],
  ["\t", "t"],
  ["\b", "b"],
  ["\f", "f"],
]);

/**
 * The characters of a base64 text that consist only of the secret's bits when it begins at this offset modulo 3, and
 * the one before and after them that contain some.
 */
function base64(bytes: Uint8Array, alignment: number): Form {
  const padded = new Uint8Array(alignment + bytes.length);
  padded.set(bytes, alignment);
  const encoded = btoa(String.fromCharCode(...padded)).replace(/=+$/, "");
  const first = Math.ceil((alignment * 8) / 6);
  const last = Math.floor((padded.length * 8) / 6);
  const characters = [...encoded.slice(first, last)].map((character) =>
    character === "+" ? "(?:[+\\-]|%2[bB])" : character === "/" ? "(?:\\\\{0,3}/|_|%2[fF])" : character,
  );
  const partly = "(?:[A-Za-z0-9+/_-]\\r?\\n?)?";
  const source = (alignment === 0 ? "" : partly) + characters.join("\\r?\\n?");
  const endsWithin = (padded.length * 8) % 6 !== 0;
  return { source: source + (endsWithin ? "(?:\\r?\\n?[A-Za-z0-9+/_-])?" : ""), maxChars: (characters.length + 2) * 6 };
}

function hexadecimal(bytes: Uint8Array): Form {
  const pairs = [...bytes].map(anyCaseHex);
  const separator = `[\\s:,\\\\x]{0,${HEX_SEPARATORS_MAX}}`;
  return { source: pairs.join(separator), maxChars: pairs.length * (2 + HEX_SEPARATORS_MAX) };
}

function anyCaseHex(byte: number): string {
  return [...byte.toString(16).padStart(2, "0")]
    .map((digit) => (/[a-f]/.test(digit) ? `[${digit}${digit.toUpperCase()}]` : digit))
    .join("");
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}
