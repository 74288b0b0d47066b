/**
 * Completion for shells, written out of the commands themselves, so that it never names one that is not there. The script
 * is static: pressing Tab starts no Sandlot.
 */

import type { Command } from "commander";

export const SHELLS = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof SHELLS)[number];

interface Node {
  /** The words that lead there; none for the program itself. */
  readonly path: readonly string[];
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  /** What its arguments may be, where that is a list. */
  readonly choices: readonly string[];
  readonly options: readonly Flag[];
}

interface Flag {
  readonly flags: readonly string[];
  readonly description: string;
  readonly takesValue: boolean;
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
    options: [
      ...command.options.map(({ short, long, description, required, optional, argChoices }) => ({
        flags: [short, long].filter((flag) => flag !== undefined),
        description,
        takesValue: required || optional,
        choices: argChoices ?? [],
      })),
      { flags: ["-h", "--help"], description: "show help", takesValue: false, choices: [] },
    ],
  };
  return [node, ...command.commands.flatMap((below) => nodesOf(below, [...path, below.name()]))];
}

/**
 * Walks the words before the cursor down to a command, then offers what may stand there: a value after an option that takes one,
 * options where a hyphen was typed, otherwise commands and arguments; and files where nothing is known.
 */
function bashScript(nodes: readonly Node[]): string {
  const cases = nodes.map(({ path, commands, choices, options }) => {
    const words = [...commands.map(({ name }) => name), ...choices].join(" ");
    return `    ${quoted(path.join(" "))}) words=${quoted(words)} options=${quoted(longFlags(options).join(" "))} ;;`;
  });
  return `# bash completion for sandlot: sandlot completion bash > /etc/bash_completion.d/sandlot
_sandlot() {
  local current="\${COMP_WORDS[COMP_CWORD]}" route="" word words="" options=""
  local index
${walk(nodes, { first: 1, end: "COMP_CWORD", words: "COMP_WORDS" })}
  case "\${route//\\// }" in
${cases.join("\n")}
  esac
  case "\${route//\\// } \${COMP_WORDS[COMP_CWORD - 1]}" in
${valueCases(nodes, (choices) => `words=${quoted(choices.join(" "))}`)}
    *) [[ "\${current}" == -* ]] && words="\${options}" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "\${words}" -- "\${current}")
  if [[ \${#COMPREPLY[@]} -eq 0 && "\${current}" != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "\${current}")
  fi
}
complete -o filenames -F _sandlot sandlot
`;
}

/**
 * The same walk, and descriptions beside the words. `path` is a name of its own in zsh, so ours is `route`. As a file of
 * $fpath it is run for the first Tab, and has to complete at once; sourced, it only makes itself known.
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
${valueCases(nodes, (choices) => (choices.length === 0 ? "_files; return" : `compadd -- ${choices.join(" ")}; return`))}
  esac
  if [[ "\${words[CURRENT]}" == -* ]]; then
    _describe 'option' flags
  else
    (( \${#entries} )) && _describe 'sandlot' entries || _files
  fi
}
if [[ "\${funcstack[1]}" == _sandlot ]]; then _sandlot "$@"; else compdef _sandlot sandlot; fi
`;
}

/** Leaves the command that the words before the cursor lead to in `route`, its parts with slashes between them. */
function walk(nodes: readonly Node[], line: { readonly first: number; readonly end: string; readonly words: string }) {
  return `  for ((index = ${line.first}; index < ${line.end}; index++)); do
    word="\${${line.words}[index]}"
    case " ${pathsOf(nodes)} " in
      *" \${route:+\${route}/}\${word} "*) route="\${route:+\${route}/}\${word}" ;;
    esac
  done`;
}

/** One line for each option of each command that takes a value: what follows it is no command. */
function valueCases(nodes: readonly Node[], offer: (choices: readonly string[]) => string): string {
  return nodes
    .flatMap(({ path, options }) =>
      options
        .filter(({ takesValue }) => takesValue)
        .map(({ flags, choices }) => {
          const patterns = flags.map((flag) => quoted([...path, flag].join(" "))).join(" | ");
          return `    ${patterns}) ${offer(choices)} ;;`;
        }),
    )
    .join("\n");
}

function fishScript(nodes: readonly Node[]): string {
  const lines = nodes.flatMap(({ path, commands, choices, options }) => {
    const names = commands.map(({ name }) => name).join(" ");
    const seen = path.map((word) => `__fish_seen_subcommand_from ${word}`);
    const here = commands.length === 0 ? seen : [...seen, `not __fish_seen_subcommand_from ${names}`];
    const condition = here.length === 0 ? "" : ` -n ${quoted(here.join("; and "))}`;
    return [
      ...commands.map(
        ({ name, description }) => `complete -c sandlot -f${condition} -a ${name} -d ${quoted(description)}`,
      ),
      ...choices.map((choice) => `complete -c sandlot -f${condition} -a ${choice}`),
      ...options.map((option) => `complete -c sandlot${condition}${fishFlag(option)}`),
    ];
  });
  return `# fish completion for sandlot: sandlot completion fish > ~/.config/fish/completions/sandlot.fish\n${lines.join("\n")}\n`;
}

function fishFlag({ flags, description, takesValue, choices }: Flag): string {
  const short = flags.find((flag) => /^-[^-]/.test(flag));
  const [long] = longFlags([{ flags }]);
  const named = `${short === undefined ? "" : ` -s ${short.slice(1)}`}${long === undefined ? "" : ` -l ${long.slice(2)}`}`;
  const value = choices.length > 0 ? ` -x -a ${quoted(choices.join(" "))}` : takesValue ? " -r" : "";
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

/** In single quotes, as all three shells understand them. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
