/** The formats of package tools' configuration files, as far as registries need them. What is not understood is skipped. */

/** Sections of `key = value` with continued lines, as pip has them. Keys before any section are in `""`. */
export function parseIni(text: string): ReadonlyMap<string, ReadonlyMap<string, string>> {
  const sections = new Map<string, Map<string, string>>();
  let section = new Map<string, string>();
  sections.set("", section);
  let last: string | null = null;
  for (const line of text.split(/\r?\n/)) {
    if (/^\s*(?:[#;].*)?$/.test(line)) continue;
    const head = /^\[([^\]]+)\]/.exec(line);
    const pair = /^([^\s=:][^=:]*?)\s*[=:]\s*(.*)$/.exec(line);
    if (head !== null) {
      const name = head[1] ?? "";
      section = sections.get(name) ?? new Map();
      sections.set(name, section);
      last = null;
    } else if (/^\s/.test(line) && last !== null) {
      section.set(last, `${section.get(last) ?? ""} ${line.trim()}`.trim());
    } else if (pair !== null) {
      last = (pair[1] ?? "").trim();
      section.set(last, (pair[2] ?? "").trim());
    }
  }
  return sections;
}

/** `key=value` lines of an npmrc, with `${NAME}` replaced as npm does. */
export function parseNpmrc(
  text: string,
  environment: Readonly<Record<string, string | undefined>>,
): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const line of text.split(/\r?\n/)) {
    const pair = /^\s*([^#;=\s][^=]*?)\s*=\s*(.*?)\s*$/.exec(line);
    if (pair === null) continue;
    const value = (pair[2] ?? "").replace(/^(["'])(.*)\1$/, "$2");
    found.set(
      pair[1] ?? "",
      value.replace(/\$\{([^}?]+)\??\}/g, (whole, name: string) => environment[name] ?? whole),
    );
  }
  return found;
}

export interface NetrcEntry {
  readonly login: string;
  readonly password: string;
}

export function parseNetrc(text: string): ReadonlyMap<string, NetrcEntry> {
  const found = new Map<string, NetrcEntry>();
  const words = text
    .replace(/^\s*#.*$/gm, "")
    .split(/\s+/)
    .filter(Boolean);
  let host: string | null = null;
  let login = "";
  for (let at = 0; at < words.length; at++) {
    const [word, next = ""] = [words[at], words[at + 1]];
    if (word === "machine") [host, login] = [next, ""];
    else if (word === "default") host = null;
    else if (word === "login") login = next;
    else if (word === "password" && host !== null) found.set(host, { login, password: next });
    else continue;
    if (word !== "default") at++;
  }
  return found;
}

/**
 * Strings of a TOML file by their dotted key: `registries.mirror.index`. It reads tables, dotted keys, inline tables of
 * strings, and basic and literal strings on one line, which is how cargo's registries are written.
 */
export function parseTomlStrings(text: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  let table: readonly string[] = [];
  for (const line of text.split(/\r?\n/)) {
    const head = /^\s*\[([^[\]]+)\]\s*(?:#.*)?$/.exec(line);
    if (head !== null) table = keyParts(head[1] ?? "");
    else if (/^\s*\[/.test(line)) table = ["?"];
    else readPair(line, table, found);
  }
  return found;
}

function readPair(line: string, table: readonly string[], found: Map<string, string>): void {
  const pair =
    /^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=\s*(.*)$/.exec(line);
  if (pair === null) return;
  const key = [...table, ...keyParts(pair[1] ?? "")];
  const value = pair[2] ?? "";
  const inline = /^\{(.*)\}\s*(?:#.*)?$/.exec(value);
  if (inline !== null) {
    for (const part of (inline[1] ?? "").match(/(?:"[^"]*"|'[^']*'|[^,])+/g) ?? []) readPair(part, key, found);
    return;
  }
  const text = /^"((?:[^"\\]|\\.)*)"|^'([^']*)'/.exec(value);
  if (text !== null) found.set(key.join("."), text[2] ?? (text[1] ?? "").replace(/\\(["\\])/g, "$1"));
}

function keyParts(text: string): readonly string[] {
  return (text.match(/"[^"]*"|'[^']*'|[A-Za-z0-9_-]+/g) ?? []).map((part) => part.replace(/^["']|["']$/g, ""));
}
