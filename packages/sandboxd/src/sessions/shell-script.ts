/**
 * The script of a session's shell. It is sent through a pipe: there is no loop of ours that a `break` could leave, and
 * no descriptor of ours that a command could close or a background process keep. (It is not the shell's stdin, which
 * Bash then takes for its own: `exec 3<&0` would crash it.)
 *
 * A command is evaluated with its own stdin, stdout and stderr, each opened by name. Afterwards the shell writes one
 * record to the status pipe: nonce, exit status, directory. A command's output goes elsewhere, so it cannot be mistaken
 * for a record.
 */

export interface ShellCommand {
  /** Returned in the record. Unknown to the command. */
  readonly nonce: string;
  readonly command: string;
  /** The value of `$?` when the command begins. */
  readonly lastStatus: number;
  readonly stdin: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly statusPipe: string;
}

/** The first part of the script. The shell starts in its script's directory, so its messages have no path. */
export function preludeFor(cwd: string): string {
  return `${[
    "__sandlot_status() { return $1; }",
    "__sandlot_report() { \\command printf '%s %s ' \"$1\" \"$2\"; \\command pwd; \\command printf '\\0'; }",
    `cd -- ${quote(cwd)}; unset OLDPWD`,
  ].join("\n")}\n`;
}

export function programFor(call: ShellCommand): string {
  const streams = `<${quote(call.stdin)} >${quote(call.stdout)} 2>${quote(call.stderr)}`;
  const pipe = quote(call.statusPipe);
  return `${[
    // With `set -e` a non-zero status would end the shell before the command begins.
    `case $- in *e*) ;; *) __sandlot_status ${call.lastStatus} ;; esac`,
    // `command`: without it some shells end at a syntax error in evaluated text.
    `\\command eval ${quote(call.command)} ${streams}`,
    // A plain command: after an open quotation mark Bash does not recognise a brace again until one was read.
    `__sandlot_report ${quote(call.nonce)} "$?" >>${pipe}`,
    // If the pipe was removed, the report is lost; the shell's end reports instead.
    `[ -p ${pipe} ] || \\exit 1`,
  ].join("\n")}\n`;
}

export interface ShellRecord {
  readonly nonce: string;
  readonly status: number;
  readonly cwd: string;
}

/** `null`: nothing that the shell would write. */
export function parseRecord(text: string): ShellRecord | null {
  const match = /^(\S+) (\d+) (.*)\n$/s.exec(text);
  if (match === null) return null;
  const [, nonce = "", status = "", cwd = ""] = match;
  return { nonce, status: Number(status), cwd };
}

/** Quotes one shell word. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
