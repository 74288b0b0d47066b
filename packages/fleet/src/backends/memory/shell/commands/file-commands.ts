/**
 * Commands that make, move, remove and describe files.
 */

import { sizeOf, type TreeNode } from "../../files/node.ts";
import { baseName, join } from "../../files/tree.ts";
import { UsageError } from "../failure.ts";
import { type CommandTable, type Invocation, type Options, readOptions } from "./invocation.ts";

export const FILE_COMMANDS: CommandTable = {
  mkdir: async (command) => {
    const { flags, values, operands } = readOptions(command.args, "pv", "m", { parents: "p" });
    const mode = values.get("m");
    return command.each(needOperand(operands), (path) => {
      if (flags.has("p")) command.tree.mkdirs(path);
      else command.tree.mkdir(path);
      if (mode !== undefined) command.tree.chmod(path, Number.parseInt(mode, 8));
    });
  },
  rmdir: async (command) =>
    command.each(needOperand(readOptions(command.args, "p").operands), (path) => {
      command.tree.directory(path);
      command.tree.remove(path);
    }),
  rm: remove,
  mv: async (command) => {
    const options = readOptions(command.args, "fvnT", "", { force: "f" });
    return transfer(command, options, async (from, to, name) => {
      if (options.flags.has("n") && command.tree.find(to) !== undefined) return "done";
      command.tree.rename(from, to);
      if (options.flags.has("v")) await command.write(`renamed '${name}' -> '${to}'\n`);
      return "done";
    });
  },
  cp: async (command) => {
    const options = readOptions(command.args, "rRapfvn", "", { recursive: "r", archive: "a", force: "f" });
    const recursive = ["r", "R", "a"].some((flag) => options.flags.has(flag));
    return transfer(command, options, async (from, to, name) => {
      if (command.tree.get(from).kind === "directory" && !recursive) {
        await command.warn(`-r not specified; omitting directory '${name}'`);
        return "failed";
      }
      if (!options.flags.has("n") || command.tree.find(to) === undefined) copyOver(command, from, to);
      return "done";
    });
  },
  touch: async (command) => {
    const { flags, operands } = readOptions(command.args, "acm", "dt");
    return command.each(needOperand(operands), (path) => {
      if (flags.has("c") && command.tree.find(path) === undefined) return;
      command.tree.touch(path, command.state.machine.world.wallMs());
    });
  },
  ln: async (command) => {
    const { flags, operands } = readOptions(command.args, "sfnv", "", { symbolic: "s", force: "f" });
    const [target, given] = operands;
    if (target === undefined) throw new UsageError("missing file operand");
    if (!flags.has("s")) return command.fail("hard links are not supported; use -s");
    return command.each([given ?? baseName(target)], (path) => {
      const link =
        command.tree.find(path)?.kind === "directory" && !flags.has("n") ? join(path, baseName(target)) : path;
      if (flags.has("f") && command.tree.find(link, { follow: false }) !== undefined) command.tree.remove(link);
      command.tree.symlink(target, link);
    });
  },
  chmod: changeMode,
  basename: async (command) => {
    const [path = "", suffix = ""] = command.args;
    const name = baseName(path);
    await command.write(
      `${suffix !== "" && name !== suffix && name.endsWith(suffix) ? name.slice(0, -suffix.length) : name}\n`,
    );
    return 0;
  },
  dirname: async (command) => {
    for (const path of command.args) {
      const trimmed = path.replace(/\/+$/, "").replace(/\/*[^/]*$/, "");
      await command.write(`${trimmed === "" ? (path.startsWith("/") ? "/" : ".") : trimmed}\n`);
    }
    return 0;
  },
  readlink: async (command) => {
    const { flags, operands } = readOptions(command.args, "fen");
    return command.each(operands, async (path) => {
      const node = command.tree.get(path, { follow: false });
      if (!flags.has("f") && !flags.has("e") && node.kind !== "symlink") throw new UsageError("not a symbolic link");
      await command.write(
        `${node.kind === "symlink" && !flags.has("f") && !flags.has("e") ? node.target : command.tree.realPath(path)}\n`,
      );
    });
  },
  realpath: async (command) =>
    command.each(command.args, async (path) => {
      await command.write(`${command.tree.realPath(path)}\n`);
    }),
  mktemp: async (command) => {
    const { flags, operands } = readOptions(command.args, "dqu", "pt");
    const name = (operands[0] ?? "tmp.XXXXXXXXXX").replace(/X{3,}$/, (marks) =>
      command.state.machine.world.randomHex(marks.length).slice(0, marks.length),
    );
    const path = name.includes("/") || operands.length > 0 ? command.resolve(name) : join("/tmp", name);
    if (flags.has("d")) command.tree.mkdir(path);
    else command.tree.open(path);
    await command.write(`${path}\n`);
    return 0;
  },
  stat: async (command) => {
    const { flags, values, operands } = readOptions(command.args, "L", "c", { format: "c", dereference: "L" });
    return command.each(needOperand(operands), async (path, operand) => {
      const node = command.tree.get(path, { follow: flags.has("L") });
      const format = values.get("c") ?? "  File: %n\n  Size: %s\t%F\nAccess: (%a/%A)\nModify: %y";
      await command.write(`${describe(format, operand, node)}\n`);
    });
  },
};

async function remove(command: Invocation): Promise<number> {
  const { flags, operands } = readOptions(command.args, "rRfvdi", "", { recursive: "r", force: "f" });
  const recursive = flags.has("r") || flags.has("R");
  if (operands.length === 0 && !flags.has("f")) throw new UsageError("missing operand");
  let refused = 0;
  const status = await command.each(operands, async (path, operand) => {
    const node = command.tree.find(path, { follow: false });
    if (node === undefined && flags.has("f")) return;
    if (node?.kind === "directory" && !recursive && !flags.has("d")) {
      await command.warn(`cannot remove '${operand}': Is a directory`);
      refused = 1;
      return;
    }
    command.tree.remove(path, { recursive });
  });
  return status || refused;
}

/** What `mv` and `cp` share: one source to a name, or many into a directory. */
async function transfer(
  command: Invocation,
  { operands, flags }: Options,
  act: (from: string, to: string, name: string) => Promise<"done" | "failed">,
): Promise<number> {
  const sources = operands.slice(0, -1);
  const last = operands.at(-1);
  if (last === undefined || sources.length === 0) throw new UsageError("missing file operand");
  const target = command.resolve(last);
  const into = command.tree.find(target)?.kind === "directory" && !flags.has("T");
  if (sources.length > 1 && !into) return command.fail(`target '${last}' is not a directory`);
  let failed = 0;
  const status = await command.each(sources, async (from, operand) => {
    const outcome = await act(from, into ? join(target, baseName(from)) : target, operand);
    if (outcome === "failed") failed = 1;
  });
  return status || failed;
}

/** A directory is copied into one that exists by copying what is in it. */
function copyOver(command: Invocation, from: string, to: string): void {
  const source = command.tree.get(from);
  if (source.kind !== "directory" || command.tree.find(to)?.kind !== "directory") {
    command.tree.copy(from, to);
    return;
  }
  for (const name of source.entries.keys()) copyOver(command, join(from, name), join(to, name));
}

async function changeMode(command: Invocation): Promise<number> {
  const recursive = command.args.includes("-R");
  // A mode may begin with a minus, so these are not read as options.
  const [mode = "", ...operands] = command.args.filter((arg) => arg !== "-R" && arg !== "-f");
  return command.each(needOperand(operands), (path) => {
    const apply = (at: string): void => {
      const node = command.tree.get(at);
      command.tree.chmod(at, modeFrom(mode, node.mode));
      if (recursive && node.kind === "directory") for (const name of node.entries.keys()) apply(join(at, name));
    };
    apply(path);
  });
}

const SHIFTS: Readonly<Record<string, number>> = { u: 6, g: 3, o: 0 };
const BITS: Readonly<Record<string, number>> = { r: 4, w: 2, x: 1, X: 1 };

function modeFrom(text: string, present: number): number {
  if (/^[0-7]{1,4}$/.test(text)) return Number.parseInt(text, 8);
  let mode = present;
  for (const clause of text.split(",")) {
    const match = /^([ugoa]*)([-+=])([rwxX]*)$/.exec(clause);
    if (match === null) throw new UsageError(`invalid mode: '${text}'`);
    const [, who = "", operator = "", what = ""] = match;
    const bits = [...what].reduce((sum, letter) => sum | (BITS[letter] ?? 0), 0);
    for (const group of who === "" || who.includes("a") ? "ugo" : who) {
      const shift = SHIFTS[group] ?? 0;
      if (operator === "=") mode &= ~(7 << shift);
      if (operator === "-") mode &= ~(bits << shift);
      else mode |= bits << shift;
    }
  }
  return mode;
}

const KIND_NAMES = {
  file: "regular file",
  directory: "directory",
  symlink: "symbolic link",
  device: "character special file",
} as const;

function describe(format: string, name: string, node: TreeNode): string {
  const values: Record<string, string> = {
    n: name,
    s: String(sizeOf(node)),
    a: (node.mode & 0o7777).toString(8),
    A: modeText(node),
    F: node.kind === "file" && node.size === 0 ? "regular empty file" : KIND_NAMES[node.kind],
    Y: String(Math.floor(node.modifiedAt / 1000)),
    y: new Date(node.modifiedAt).toISOString(),
    U: "sandbox",
    G: "sandbox",
  };
  return format.replace(/%([A-Za-z])/g, (whole, letter: string) => values[letter] ?? whole);
}

/** As `ls -l` shows a mode. */
export function modeText(node: TreeNode): string {
  const letters = "rwxrwxrwx";
  const kind = node.kind === "directory" ? "d" : node.kind === "symlink" ? "l" : node.kind === "device" ? "c" : "-";
  return kind + [...letters].map((letter, index) => ((node.mode >> (8 - index)) & 1 ? letter : "-")).join("");
}

function needOperand(operands: readonly string[]): readonly string[] {
  if (operands.length === 0) throw new UsageError("missing operand");
  return operands;
}
