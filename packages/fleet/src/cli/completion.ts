/**
 * Shell completion, generated from the commands themselves, so that it never names a missing one. The script is static,
 * and pressing Tab starts no Sandlot, with one exception: after `-t` it lists the names of threads.
 */

import type { Command } from "commander";

export const SHELLS = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof SHELLS)[number];

/** Runs when Tab is pressed where a thread belongs. A failure completes nothing. */
const THREADS = "sandlot ps --threads --quiet 2>/dev/null";

interface Node {
  /** The words of the command; none for the program itself. */
  readonly path: readonly string[];
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  /** The arguments it accepts, where that is a list. */
  readonly choices: readonly string[];
  /** Its argument is a thread, or a path inside one; never a file of this machine. */
  readonly takesThread: boolean;
  readonly options: readonly Flag[];
}

interface Flag {
  readonly flags: readonly string[];
  readonly description: string;
  readonly takesValue: boolean;
  readonly isThread: boolean;
  readonly choices: readonly string[];
}

export function completionScript(shell: Shell, program: Command): string {
  const nodes = nodesOf(program, []);
  if (shell === "bash") return bashScript(nodes);
  return shell === "zsh" ? zshScript(nodes) : fishScript(nodes);
}

function nodesOf(command: Command, path: readonly string[]): readonly Node[] {
  const node: Node = {
    path,
    commands: command.commands.map((below) => ({ name: below.name(), description: below.description() })),
    choices: command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []),
    takesThread: command.name() === "ls",
    options: [
      ...command.options.map(({ short, long, description, required, optional, argChoices }) => ({
        flags: [short, long].filter((flag) => flag !== undefined),
        description,
        takesValue: required || optional,
        isThread: long === "--thread",
        choices: argChoices ?? [],
      })),
      { flags: ["-h", "--help"], description: "show help", takesValue: false, isThread: false, choices: [] },
    ],
  };
  return [node, ...command.commands.flatMap((below) => nodesOf(below, [...path, below.name()]))];
}

/**
 * Follows the words before the cursor to a command, then offers what may come next: a value after an option that takes
 * one, options after a hyphen, otherwise commands and arguments; and files where nothing is known.
 */
function bashScript(nodes: readonly Node[]): string {
  const cases = nodes.map(({ path, commands, choices, options, takesThread }) => {
    const words = [...commands.map(({ name }) => name), ...choices].join(" ");
    const offered = takesThread ? `"$(${THREADS})" files=""` : quoted(words);
    return `    ${quoted(path.join(" "))}) words=${offered} options=${quoted(longFlags(options).join(" "))} ;;`;
  });
  return `# bash completion for sandlot: sandlot completion bash > /etc/bash_completion.d/sandlot
_sandlot() {
  local current="\${COMP_WORDS[COMP_CWORD]}" route="" word words="" options="" files=1
  local index
${walk(nodes, { first: 1, end: "COMP_CWORD", words: "COMP_WORDS" })}
  case "\${route//\\// }" in
${cases.join("\n")}
  esac
  case "\${route//\\// } \${COMP_WORDS[COMP_CWORD - 1]}" in
${valueCases(nodes, ({ isThread, choices }) => (isThread ? `words="$(${THREADS})" files=""` : `words=${quoted(choices.join(" "))}`))}
    *) [[ "\${current}" == -* ]] && words="\${options}" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "\${words}" -- "\${current}")
  if [[ -n "\${files}" && \${#COMPREPLY[@]} -eq 0 && "\${current}" != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "\${current}")
  fi
}
complete -o filenames -F _sandlot sandlot
`;
}

/** One name per line. */
const ZSH_THREADS = `compadd -- \${(f)"$(${THREADS})"}`;

/**
 * The same walk, with descriptions beside the words. zsh reserves `path`, so the variable is `route`. As a file of
 * $fpath it runs at the first Tab, and has to complete at once; sourced, it only registers itself.
 */
function zshScript(nodes: readonly Node[]): string {
  const described = (entries: readonly { readonly name: string; readonly description: string }[]) =>
    entries.map(({ name, description }) => quoted(`${name}:${description}`)).join(" ");
  const cases = nodes.map(({ path, commands, choices, options }) => {
    const flags = options.flatMap((option) =>
      longFlags([option]).map((name) => ({ name, description: option.description })),
    );
    const words = [described(commands), ...choices.map(quoted)].filter((part) => part !== "").join(" ");
    return `    ${quoted(path.join(" "))}) entries=(${words}); flags=(${described(flags)}) ;;`;
  });
  return `#compdef sandlot
# zsh completion for sandlot: sandlot completion zsh > a directory of $fpath, as _sandlot
_sandlot() {
  local -a entries flags
  local route="" word
  local -i index
${walk(nodes, { first: 2, end: "CURRENT", words: "words" })}
  case "\${route//\\// }" in
${cases.join("\n")}
  esac
  case "\${route//\\// } \${words[CURRENT - 1]}" in
${valueCases(nodes, ({ isThread, choices }) => {
  if (isThread) return `${ZSH_THREADS}; return`;
  return choices.length === 0 ? "_files; return" : `compadd -- ${choices.join(" ")}; return`;
})}
  esac
  if [[ "\${words[CURRENT]}" == -* ]]; then
    _describe 'option' flags
  elif [[ " ${nodes
    .filter(({ takesThread }) => takesThread)
    .map(({ path }) => path.join("/"))
    .join(" ")} " == *" \${route} "* ]]; then
    ${ZSH_THREADS}
  else
    (( \${#entries} )) && _describe 'sandlot' entries || _files
  fi
}
if [[ "\${funcstack[1]}" == _sandlot ]]; then _sandlot "$@"; else compdef _sandlot sandlot; fi
`;
}

/** Sets `route` to the command that the words before the cursor lead to, its parts separated by slashes. */
function walk(nodes: readonly Node[], line: { readonly first: number; readonly end: string; readonly words: string }) {
  return `  for ((index = ${line.first}; index < ${line.end}; index++)); do
    word="\${${line.words}[index]}"
    case " ${pathsOf(nodes)} " in
      *" \${route:+\${route}/}\${word} "*) route="\${route:+\${route}/}\${word}" ;;
    esac
  done`;
}

/** One line for each option of each command that takes a value: the word after it is no command. */
function valueCases(nodes: readonly Node[], offer: (flag: Flag) => string): string {
  return nodes
    .flatMap(({ path, options }) =>
      options
        .filter(({ takesValue }) => takesValue)
        .map((option) => {
          const patterns = option.flags.map((flag) => quoted([...path, flag].join(" "))).join(" | ");
          return `    ${patterns}) ${offer(option)} ;;`;
        }),
    )
    .join("\n");
}

function fishScript(nodes: readonly Node[]): string {
  const lines = nodes.flatMap(({ path, commands, choices, options, takesThread }) => {
    const names = commands.map(({ name }) => name).join(" ");
    const seen = path.map((word) => `__fish_seen_subcommand_from ${word}`);
    const here = commands.length === 0 ? seen : [...seen, `not __fish_seen_subcommand_from ${names}`];
    const condition = here.length === 0 ? "" : ` -n ${quoted(here.join("; and "))}`;
    return [
      ...commands.map(
        ({ name, description }) => `complete -c sandlot -f${condition} -a ${name} -d ${quoted(description)}`,
      ),
      ...choices.map((choice) => `complete -c sandlot -f${condition} -a ${choice}`),
      ...(takesThread ? [`complete -c sandlot -f${condition} -a '(${THREADS})'`] : []),
      ...options.map((option) => `complete -c sandlot${condition}${fishFlag(option)}`),
    ];
  });
  return `# fish completion for sandlot: sandlot completion fish > ~/.config/fish/completions/sandlot.fish\n${lines.join("\n")}\n`;
}

function fishFlag({ flags, description, takesValue, isThread, choices }: Flag): string {
  const short = flags.find((flag) => /^-[^-]/.test(flag));
  const [long] = longFlags([{ flags }]);
  const named = `${short === undefined ? "" : ` -s ${short.slice(1)}`}${long === undefined ? "" : ` -l ${long.slice(2)}`}`;
  const known = isThread ? ` -x -a '(${THREADS})'` : null;
  const value =
    known !== null ? known : choices.length > 0 ? ` -x -a ${quoted(choices.join(" "))}` : takesValue ? " -r" : "";
  return `${named}${value} -d ${quoted(description)}`;
}

function longFlags(options: readonly { readonly flags: readonly string[] }[]): readonly string[] {
  return options.flatMap(({ flags }) => flags.filter((flag) => flag.startsWith("--")));
}

function pathsOf(nodes: readonly Node[]): string {
  return nodes
    .filter(({ path }) => path.length > 0)
    .map(({ path }) => path.join("/"))
    .join(" ");
}

/** In single quotes, valid in all three shells. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
