/**
 * Commands that make, remove and list files.
 */

import type { TreeNode } from "../../files/node.ts";
import { join } from "../../files/tree.ts";
import { UsageError } from "../failure.ts";
import { Unsupported } from "../syntax.ts";
import { type CommandTable, countOf, type Invocation } from "./invocation.ts";

export const FILE_COMMANDS: CommandTable = {
  ls: list,
  find,
  mkdir: async (command) => {
    const { flags, operands } = command.options("p");
    return command.each(atLeastOne(operands), (path) => {
      if (flags.has("p")) command.tree.mkdirs(path);
      else command.tree.mkdir(path);
    });
  },
  rm: async (command) => {
    const { flags, operands } = command.options("rf");
    const isForced = flags.has("f");
    return command.each(isForced ? operands : atLeastOne(operands), (path) => {
      if (isForced && command.tree.find(path, { follow: false }) === undefined) return;
      command.tree.remove(path, { recursive: flags.has("r") });
    });
  },
  touch: async (command) => {
    const { operands } = command.options("");
    return command.each(atLeastOne(operands), (path) => {
      command.tree.touch(path, command.state.machine.world.wallMs());
    });
  },
  ln: async (command) => {
    const { flags, operands } = command.options("s");
    const [target, link, ...others] = operands;
    if (!flags.has("s") || target === undefined || link === undefined || others.length > 0)
      throw new Unsupported(`ln ${command.args.join(" ")}`);
    return command.each([link], (path) => {
      if (command.tree.find(path)?.kind === "directory") throw new Unsupported("ln into a directory");
      command.tree.symlink(target, path);
    });
  },
  /** `chmod 755` and `chmod +x`. */
  chmod: async (command) => {
    const [mode = "", ...operands] = command.args;
    if (mode !== "+x" && !/^[0-7]{3,4}$/.test(mode)) throw new Unsupported(`chmod ${mode}`);
    return command.each(atLeastOne(operands), (path) => {
      const present = command.tree.get(path).mode;
      command.tree.chmod(path, mode === "+x" ? present | 0o111 : Number.parseInt(mode, 8));
    });
  },
  readlink: async (command) => {
    const { flags, operands } = command.options("f");
    if (!flags.has("f")) throw new Unsupported("readlink without -f");
    return command.each(atLeastOne(operands), async (path) => {
      await command.write(`${command.tree.realPath(path)}\n`);
    });
  },
};

/** Names only, one in a line. */
async function list(command: Invocation): Promise<number> {
  const { flags, operands } = command.options("aA1");
  const paths = operands.length === 0 ? ["."] : operands;
  const files: string[] = [];
  const directories: { readonly title: string; readonly names: readonly string[] }[] = [];
  const status = await command.each(paths, (path, operand) => {
    const node = command.tree.get(path);
    if (node.kind === "directory") directories.push({ title: operand, names: namesIn(node.entries, flags) });
    else files.push(operand);
  });
  const titled = (title: string, names: readonly string[]) => (paths.length > 1 ? [`${title}:`, ...names] : names);
  const blocks = [files.sort(), ...directories.map(({ title, names }) => titled(title, names))];
  const shown = blocks.filter((block, at) => at > 0 || block.length > 0);
  await command.write(shown.map((names) => names.map((name) => `${name}\n`).join("")).join("\n"));
  return status === 0 ? 0 : 2;
}

function namesIn(entries: ReadonlyMap<string, TreeNode>, flags: ReadonlySet<string>): readonly string[] {
  const names = [...entries.keys()].filter((name) => !name.startsWith(".") || flags.has("a") || flags.has("A")).sort();
  return flags.has("a") ? [".", "..", ...names] : names;
}

/** `find path... [-mindepth n] [-delete]` */
async function find(command: Invocation): Promise<number> {
  const first = command.args.findIndex((arg) => arg.startsWith("-"));
  const roots = first < 0 ? command.args : command.args.slice(0, first);
  const rest = first < 0 ? [] : command.args.slice(first);
  const minDepth = rest[0] === "-mindepth" ? countOf(rest.splice(0, 2)[1] ?? "") : 0;
  const deletes = rest[0] === "-delete" && rest.shift() !== undefined;
  if (rest.length > 0) throw new Unsupported(`find ${rest.join(" ")}`);
  return command.each(atLeastOne(roots), async (root, operand) => {
    const visit = async (path: string, shown: string, node: TreeNode, depth: number): Promise<void> => {
      await command.process.breathe();
      if (!deletes && depth >= minDepth) await command.write(`${shown}\n`);
      // A copy of the names: the visit may delete entries.
      for (const [name, child] of node.kind === "directory" ? [...node.entries] : [])
        await visit(join(path, name), join(shown, name), child, depth + 1);
      if (deletes && depth >= minDepth) command.tree.remove(path);
    };
    await visit(root, operand, command.tree.get(root, { follow: false }), 0);
  });
}

function atLeastOne(operands: readonly string[]): readonly string[] {
  if (operands.length === 0) throw new UsageError("missing operand");
  return operands;
}
