/**
 * What a session's shell is told. Its script is a pipe, so what is sent is the script: no loop of ours that a `break`
 * could leave, no descriptor of ours that a command could close or a background process keep. (It is not its stdin, which
 * Bash then takes for its own: `exec 3<&0` would crash it.)
 *
 * A command is evaluated with its own stdin, stdout and stderr, each opened by name. When it is over, the shell writes
 * one record to the status pipe: whose it is, the exit status, the directory. A command's output goes elsewhere, so
 * nothing it prints can be taken for that.
 */

export interface ShellCommand {
  /** Comes back in the record. Unknown to the command. */
  readonly nonce: string;
  readonly command: string;
  /** What `$?` is when the command begins. */
  readonly lastStatus: number;
  readonly stdin: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly statusPipe: string;
}

/** What is said first. The shell starts where its script is, so that its messages begin with no path. */
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
    // With `set -e` a status would end the shell before the command begins.
    `case $- in *e*) ;; *) __sandlot_status ${call.lastStatus} ;; esac`,
    // `command`: without it some shells end at a syntax error in what they evaluate.
    `\\command eval ${quote(call.command)} ${streams}`,
    // A plain command: after an open quotation mark Bash does not know a brace again until one was read.
    `__sandlot_report ${quote(call.nonce)} "$?" >>${pipe}`,
    // Somebody has removed the pipe, so nobody was told: the end of the shell tells it.
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

/** One word of the shell, whatever is in it. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
