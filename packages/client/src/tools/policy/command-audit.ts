/**
 * The command audit: checks a command before it runs and blocks, warns or passes.
 *
 * It stops accidents and the crudest prompt injections, and tells the model why. It is NOT a boundary: a shell offers
 * endless ways to write the same thing, so it can always be bypassed. The sandbox keeps a command from doing harm.
 *
 * The rules are a list that can be read, extended and tested; the corpus in the tests defines what they must find and
 * what they must pass.
 */

import { splitCommand, withoutHereDocuments } from "./shell-text.ts";

export type Verdict = "pass" | "warn" | "block";

export interface AuditFinding {
  readonly verdict: Verdict;
  /** The rule that decided; `null` for a pass. */
  readonly rule: string | null;
  /** For a person and a model. */
  readonly reason: string | null;
}

/** The audit record of every command. */
export interface AuditEntry extends AuditFinding {
  readonly thread: string;
  /** Without the values of secrets. */
  readonly command: string;
}

/** The longest command. Longer ones belong into a script file. */
const COMMAND_MAX_CHARS = 10_000;
const PASS: AuditFinding = { verdict: "pass", rule: null, reason: null };

/**
 * A rule matches when its patterns are found one after the other. Each is searched once, from the end of the one
 * before, so that every command is judged quickly: no pattern may repeat something that contains a repetition of the
 * same.
 */
interface Rule {
  readonly name: string;
  readonly reason: string;
  readonly steps: readonly RegExp[];
}

/** Fetching or interpreting while the shell builds the command. */
const RISKY = /(?:\$\(|<\(|`)\s*(?:curl|wget|bash|sh|python[\d.]*|ruby|perl|base64)\b/;

/** Matched against each command separately. */
const BLOCKED: readonly Rule[] = [
  rule(
    "remove-root",
    "removes a root or home directory",
    /\brm\s/,
    /\s(?:-[a-zA-Z]*[rR][a-zA-Z]*|--recursive)(?=\s)/,
    /\s["']?(?:\/|~|\$HOME|\$\{HOME\}|\/home|\/root)\/?\*?["']?(?=\s*(?:$|[;&|)"'`]))/,
  ),
  rule("raw-copy", "copies raw devices or files with dd", /\bdd\s/, /(?:^|\s)if=/),
  rule("make-filesystem", "makes a file system", /\bmkfs(?:\.\w+)?\b/),
  rule("password-hashes", "reads password hashes", /\bcat\s/, /\/etc\/shadow\b/),
  rule("system-write", "writes into a system directory", />\|?\s*["']?(?:\/etc\/|\/usr\/bin\/|\/bin\/|\/sbin\/)/),
  rule(
    "shell-startup",
    "writes into a shell's startup file",
    />\|?\s*["']?(?:~|\$HOME|\$\{HOME\}|\/root|\/home\/[^/\s]+)\/\.(?:bashrc|zshrc|profile|bash_profile|zprofile|bash_login|bash_logout)\b/,
  ),
  rule("eval-substitution", "evaluates what another program prints", /\b(?:eval|source)\s/, RISKY),
  rule("dot-substitution", "evaluates what another program prints", /^\.\s+["']?(?=[$<`])/, RISKY),
  rule(
    "interpreter-substitution",
    "interprets what another program prints",
    /\b(?:bash|sh|zsh|dash|python[\d.]*|node|ruby|perl|php)(?=\s)/,
    /\s(?:-\w*[cepr]\w*\s|<<<)/,
    RISKY,
  ),
  rule("other-environment", "reads the environment of processes", /\/proc\/[^\s/]+\/environ\b/),
  rule("library-injection", "changes which libraries programs load", /\b(?:LD_PRELOAD|LD_LIBRARY_PATH)=/),
  rule("raw-socket", "opens a socket from the shell", /\/dev\/(?:tcp|udp)\//),
];

/** Matched against a command whose output is piped into another one. */
const BLOCKED_BEFORE_PIPE: readonly Rule[] = [
  rule("decoded-pipe", "pipes decoded data on", /\bbase64\s/, /(?:^|\s)(?:-d|-D|--decode)(?!\S)/),
];

/** Matched against the whole text: their parts are separate commands. */
const BLOCKED_WHOLE: readonly Rule[] = [
  rule(
    "fork-bomb",
    "starts processes without end",
    /(?<![\w:.-])([\w:.-]{1,64})\s?\(\)\s?\{\s?\1\s?\|\s?\1\s?&\s?\}\s?;/,
  ),
  rule(
    "process-flood",
    "starts processes without end",
    /\bwhile\s(?:true|:|\[ 1 \])\s?;?\s?do\b/,
    /[^&]&(?![&>\d])/,
    /\bdone\b/,
  ),
];

/** Matched against each command separately. */
const WARNED: readonly Rule[] = [
  rule("open-permissions", "gives everybody all rights", /\bchmod\s/, /(?:^|\s)0?777\b/),
  rule("package-install", "installs packages", /\b(?:pip3?|python[\d.]*\s-m\spip)\s/, /(?:^|\s)install\b/),
  rule("system-install", "installs system packages", /\bapt(?:-get)?\s/, /(?:^|\s)install\b/),
  rule("privileges", "asks for privileges", /^(?:\w+=\S*\s){0,8}(?:sudo|su)\b/),
  rule("search-path", "changes where programs are found", /(?:^|\s)PATH=/),
];

/** A command that is itself the output of another one: assignments and the usual prefixes may precede it. */
const COMMAND_POSITION = new RegExp(
  String.raw`^(?:(?:[A-Za-z_]\w*=(?:"[^"]*"|'[^']*'|[^\s"'$${"`"}]*)|env|command|builtin|exec|nohup|time|sudo|doas)\s){0,8}["']?${RISKY.source}`,
);
const SHELL_READER =
  /^(?:\w+=\S*\s){0,8}(?:(?:env|command|exec|nohup|sudo|doas)\s){0,8}(?:\/[\w/.-]*\/)?(?:bash|sh|zsh|dash|ksh)(?!\S)/;
/** Their quoted arguments are text to print or to search, not commands. */
const SPEAKS_ONLY = /^(?:\w+=\S*\s){0,8}(?:echo|printf|grep|egrep|fgrep|rg|git)\b/;

/** Judges a command. Pure: the same command always gets the same finding. */
export function auditCommand(command: string): AuditFinding {
  const malformed = problemWith(command);
  if (malformed !== null) return { verdict: "block", rule: "malformed", reason: malformed };
  const parts = splitCommand(command).map(({ text, piped }) => ({ text: withoutSpeech(singleBlanks(text)), piped }));
  for (const [index, { text, piped }] of parts.entries()) {
    if (piped && SHELL_READER.test(text)) return found("block", "piped-shell", "pipes text into a shell");
    if (COMMAND_POSITION.test(text)) return found("block", "command-position", "runs what another program prints");
    const isPiped = parts[index + 1]?.piped ?? false;
    const broken = firstMatch(BLOCKED, text) ?? (isPiped ? firstMatch(BLOCKED_BEFORE_PIPE, text) : null);
    if (broken !== null) return found("block", broken.name, broken.reason);
  }
  const flood = firstMatch(BLOCKED_WHOLE, singleBlanks(withoutHereDocuments(command)));
  if (flood !== null) return found("block", flood.name, flood.reason);
  const warned = parts.map(({ text }) => firstMatch(WARNED, text)).find((rule) => rule !== null);
  return warned === undefined ? PASS : found("warn", warned.name, warned.reason);
}

function problemWith(command: string): string | null {
  if (command.trim() === "") return "the command is empty";
  if (command.length > COMMAND_MAX_CHARS) return `the command is longer than ${COMMAND_MAX_CHARS} characters`;
  if (command.includes("\0")) return "the command contains a NUL character";
  return null;
}

function firstMatch(rules: readonly Rule[], text: string): Rule | null {
  return rules.find(({ steps }) => inOrder(steps, text)) ?? null;
}

/** The leftmost match of each leaves the most for the next, so if any order fits, this finds one. */
function inOrder(steps: readonly RegExp[], text: string): boolean {
  let rest = text;
  for (const step of steps) {
    const match = step.exec(rest);
    if (match === null) return false;
    // The last character stays: the blank that ends one word also begins the next.
    rest = rest.slice(Math.max(match.index, match.index + match[0].length - 1));
  }
  return true;
}

function singleBlanks(text: string): string {
  return text.replace(/\s+/g, " ");
}

function withoutSpeech(text: string): string {
  if (!SPEAKS_ONLY.test(text)) return text;
  return text.replace(/'[^']*'/g, "''").replace(/"(?:[^"\\$`]|\\.)*"/g, '""');
}

function found(verdict: Verdict, name: string, reason: string): AuditFinding {
  return { verdict, rule: name, reason };
}

function rule(name: string, reason: string, ...steps: readonly RegExp[]): Rule {
  return { name, reason, steps };
}
