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
  readonly description: string;
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly {
    readonly flags: readonly string[];
    readonly description: string;
    readonly takesValue: boolean;
  }[];
}

export function completionScript(shell: Shell, program: Command): string {
  const nodes = nodesOf(program, []);
  if (shell === "bash") return bashScript(nodes);
  return shell === "zsh" ? zshScript(nodes) : fishScript(nodes);
}

function nodesOf(command: Command, path: readonly string[]): readonly Node[] {
  const node: Node = {
    path,
    description: command.description(),
    commands: command.commands.map((below) => ({ name: below.name(), description: below.description() })),
    options: [
      ...command.options.map(({ short, long, description, required, optional }) => ({
        flags: [short, long].filter((flag) => flag !== undefined),
        description,
        takesValue: required || optional,
      })),
      { flags: ["-h", "--help"], description: "show help", takesValue: false },
    ],
  };
  return [node, ...command.commands.flatMap((below) => nodesOf(below, [...path, below.name()]))];
}

/** Walks the words before the cursor down to a command, then offers what may stand there. */
function bashScript(nodes: readonly Node[]): string {
  const cases = nodes.map(
    ({ path, commands, options }) =>
      `    ${quoted(path.join(" "))}) words=${quoted([...commands.map(({ name }) => name), ...longFlags(options)].join(" "))} ;;`,
  );
  return `# bash completion for sandlot: sandlot completion bash > /etc/bash_completion.d/sandlot
_sandlot() {
  local current="\${COMP_WORDS[COMP_CWORD]}" route="" word words
  local index
  for ((index = 1; index < COMP_CWORD; index++)); do
    word="\${COMP_WORDS[index]}"
    case " ${pathsOf(nodes)} " in
      *" \${route:+\${route}/}\${word} "*) route="\${route:+\${route}/}\${word}" ;;
    esac
  done
  case "\${route//\\// }" in
${cases.join("\n")}
    *) words="" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "\${words}" -- "\${current}")
  if [[ \${#COMPREPLY[@]} -eq 0 && "\${current}" != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "\${current}")
  fi
}
complete -o filenames -F _sandlot sandlot
`;
}

/** The same walk, and descriptions beside the words. `path` is a name of its own in zsh, so ours is `route`. */
function zshScript(nodes: readonly Node[]): string {
  return `#compdef sandlot
# zsh completion for sandlot: sandlot completion zsh > a directory of $fpath, as _sandlot
_sandlot() {
  local -a described
  local route="" word
  local -i index
  for ((index = 2; index < CURRENT; index++)); do
    word="\${words[index]}"
    case " ${pathsOf(nodes)} " in
      *" \${route:+\${route}/}\${word} "*) route="\${route:+\${route}/}\${word}" ;;
    esac
  done
  case "\${route//\\// }" in
${nodes
  .map(({ path, commands, options }) => {
    const entries = [
      ...commands.map(({ name, description }) => `${name}:${description}`),
      ...options.flatMap(({ flags, description }) => longFlags([{ flags }]).map((flag) => `${flag}:${description}`)),
    ];
    return `    ${quoted(path.join(" "))}) described=(${entries.map(quoted).join(" ")}) ;;`;
  })
  .join("\n")}
  esac
  _describe 'sandlot' described || _files
}
compdef _sandlot sandlot
`;
}

function fishScript(nodes: readonly Node[]): string {
  const lines = nodes.flatMap(({ path, commands, options }) => {
    const names = commands.map(({ name }) => name).join(" ");
    const seen = path.map((word) => `__fish_seen_subcommand_from ${word}`);
    const here = commands.length === 0 ? seen : [...seen, `not __fish_seen_subcommand_from ${names}`];
    const condition = here.length === 0 ? "" : ` -n ${quoted(here.join("; and "))}`;
    return [
      ...commands.map(
        ({ name, description }) => `complete -c sandlot -f${condition} -a ${name} -d ${quoted(description)}`,
      ),
      ...options.map(({ flags, description, takesValue }) => {
        const short = flags.find((flag) => /^-[^-]/.test(flag));
        const [long] = longFlags([{ flags }]);
        const named = `${short === undefined ? "" : ` -s ${short.slice(1)}`}${long === undefined ? "" : ` -l ${long.slice(2)}`}`;
        return `complete -c sandlot${condition}${named}${takesValue ? " -r" : ""} -d ${quoted(description)}`;
      }),
    ];
  });
  return `# fish completion for sandlot: sandlot completion fish > ~/.config/fish/completions/sandlot.fish\n${lines.join("\n")}\n`;
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
