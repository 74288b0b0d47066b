/**
 * Commands that look at directories: ls, find, du.
 */

import { nameMatcher } from "@sandlot/sandboxd/patterns";
import { type DirectoryNode, sizeOf, type TreeNode } from "../../files/node.ts";
import { baseName, join } from "../../files/tree.ts";
import { UsageError } from "../failure.ts";
import { modeText } from "./file-commands.ts";
import { type CommandTable, countOf, type Invocation, readOptions } from "./invocation.ts";

export const LIST_COMMANDS: CommandTable = { ls: list, find, du: diskUsage };

async function list(command: Invocation): Promise<number> {
  const { flags, operands } = readOptions(command.args, "laA1dRhtrSF", "", { all: "a" });
  const paths = operands.length === 0 ? ["."] : operands;
  const show = (rows: readonly { name: string; node: TreeNode }[]) =>
    command.write(rows.map((row) => line(row, flags)).join(""));
  const files: { name: string; node: TreeNode }[] = [];
  const directories: { name: string; path: string; node: DirectoryNode }[] = [];
  const status = await command.each(paths, (path, name) => {
    const node = command.tree.get(path, { follow: !flags.has("l") || name.endsWith("/") });
    if (node.kind === "directory" && !flags.has("d")) directories.push({ name, path, node });
    else files.push({ name, node });
  });
  await show(sorted(files, flags));
  let first = files.length === 0;
  while (directories.length > 0) {
    await command.process.breathe();
    const { name, path, node } = directories.shift() as (typeof directories)[number];
    if (paths.length > 1 || flags.has("R")) await command.write(`${first ? "" : "\n"}${name}:\n`);
    first = false;
    const rows = sorted(entriesOf(node, flags), flags);
    await show(rows);
    if (!flags.has("R")) continue;
    const nested = rows.filter(
      (row): row is { name: string; node: DirectoryNode } => row.node.kind === "directory" && !/^\.\.?$/.test(row.name),
    );
    directories.unshift(
      ...nested.map((row) => ({ name: join(name, row.name), path: join(path, row.name), node: row.node })),
    );
  }
  return status === 0 ? 0 : 2;
}

function entriesOf(directory: DirectoryNode, flags: ReadonlySet<string>): { name: string; node: TreeNode }[] {
  const rows = [...directory.entries].map(([name, node]) => ({ name, node }));
  const dots = flags.has("a") ? [".", ".."].map((name) => ({ name, node: directory })) : [];
  return [...dots, ...rows.filter(({ name }) => !name.startsWith(".") || flags.has("a") || flags.has("A"))];
}

function sorted<Row extends { name: string; node: TreeNode }>(rows: readonly Row[], flags: ReadonlySet<string>): Row[] {
  const result = [...rows].sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  if (flags.has("t")) result.sort((a, b) => b.node.modifiedAt - a.node.modifiedAt);
  if (flags.has("S")) result.sort((a, b) => sizeOf(b.node) - sizeOf(a.node));
  return flags.has("r") ? result.reverse() : result;
}

function line({ name, node }: { name: string; node: TreeNode }, flags: ReadonlySet<string>): string {
  const mark = flags.has("F") && node.kind === "directory" ? "/" : "";
  if (!flags.has("l")) return `${name}${mark}\n`;
  const time = new Date(node.modifiedAt).toISOString().slice(0, 16).replace("T", " ");
  const target = node.kind === "symlink" ? ` -> ${node.target}` : "";
  return `${modeText(node)} 1 sandbox sandbox ${String(sizeOf(node)).padStart(8)} ${time} ${name}${mark}${target}\n`;
}

interface Visit {
  readonly path: string;
  readonly shown: string;
  readonly node: TreeNode;
}
type Test = (visit: Visit) => boolean | Promise<boolean>;

async function find(command: Invocation): Promise<number> {
  const firstTest = command.args.findIndex((arg) => /^[-!(]/.test(arg));
  const roots = firstTest < 0 ? command.args : command.args.slice(0, firstTest);
  const expression = new FindExpression(command, firstTest < 0 ? [] : command.args.slice(firstTest));
  const test = expression.parse();
  return command.each(roots.length === 0 ? ["."] : roots, async (path, operand) => {
    const visit = async (at: Visit, depth: number): Promise<void> => {
      await command.process.breathe();
      // A copy of the names: what is visited may be deleted meanwhile.
      const children =
        at.node.kind === "directory" && depth < expression.maxDepth
          ? [...at.node.entries].sort(([a], [b]) => (a < b ? -1 : 1))
          : [];
      const visitChildren = async () => {
        for (const [name, node] of children)
          await visit({ path: join(at.path, name), shown: join(at.shown, name), node }, depth + 1);
      };
      if (expression.depthFirst) await visitChildren();
      if (depth >= expression.minDepth) await test(at);
      if (!expression.depthFirst) await visitChildren();
    };
    await visit({ path, shown: operand, node: command.tree.get(path, { follow: false }) }, 0);
  });
}

/** find's tests: alternatives of conjunctions, with `!` and parentheses. Without an action, what matches is printed. */
class FindExpression {
  readonly #command: Invocation;
  readonly #args: readonly string[];
  #at = 0;
  #acts = false;
  minDepth = 0;
  maxDepth = Number.POSITIVE_INFINITY;
  depthFirst = false;

  constructor(command: Invocation, args: readonly string[]) {
    this.#command = command;
    this.#args = args;
  }

  parse(): Test {
    const test = this.#or();
    if (this.#at < this.#args.length) throw new UsageError(`unexpected '${this.#args[this.#at]}'`);
    if (this.#acts) return test;
    return async (visit) => (await test(visit)) && this.#print(visit, "\n");
  }

  #or(): Test {
    const left = this.#and();
    if (!this.#take("-o") && !this.#take("-or")) return left;
    const right = this.#or();
    return async (visit) => (await left(visit)) || right(visit);
  }

  #and(): Test {
    const tests: Test[] = [];
    while (this.#at < this.#args.length && !["-o", "-or", ")"].includes(this.#args[this.#at] ?? "")) {
      if (!this.#take("-a") && !this.#take("-and")) tests.push(this.#not());
    }
    return async (visit) => {
      for (const test of tests) if (!(await test(visit))) return false;
      return true;
    };
  }

  #not(): Test {
    if (this.#take("!") || this.#take("-not")) {
      const inner = this.#not();
      return async (visit) => !(await inner(visit));
    }
    if (!this.#take("(")) return this.#primary(this.#next());
    const inner = this.#or();
    if (!this.#take(")")) throw new UsageError("missing ')'");
    return inner;
  }

  #primary(name: string): Test {
    switch (name) {
      case "-name":
      case "-iname": {
        const fold = (text: string) => (name === "-iname" ? text.toLowerCase() : text);
        const matches = nameMatcher(fold(this.#next()));
        return ({ path }) => matches(fold(baseName(path)));
      }
      case "-path": {
        const matches = nameMatcher(this.#next());
        return ({ shown }) => matches(shown);
      }
      case "-type": {
        const kind = { f: "file", d: "directory", l: "symlink", c: "device" }[this.#next()];
        return ({ node }) => node.kind === kind;
      }
      case "-maxdepth":
        this.maxDepth = countOf(this.#next(), "depth");
        return () => true;
      case "-mindepth":
        this.minDepth = countOf(this.#next(), "depth");
        return () => true;
      case "-size":
        return sizeTest(this.#next());
      case "-empty":
        return ({ node }) => (node.kind === "directory" ? node.entries.size === 0 : sizeOf(node) === 0);
      case "-newer": {
        const { modifiedAt } = this.#command.tree.get(this.#command.resolve(this.#next()));
        return ({ node }) => node.modifiedAt > modifiedAt;
      }
      default:
        return this.#action(name);
    }
  }

  #action(name: string): Test {
    this.#acts = true;
    switch (name) {
      case "-print":
        return (visit) => this.#print(visit, "\n");
      case "-print0":
        return (visit) => this.#print(visit, "\0");
      case "-delete":
        this.depthFirst = true;
        return ({ path }) => {
          this.#command.tree.remove(path);
          return true;
        };
      case "-exec":
        return this.#exec();
      default:
        throw new UsageError(`unknown predicate '${name}'`);
    }
  }

  #exec(): Test {
    const argv: string[] = [];
    for (let arg = this.#next(); arg !== ";" && arg !== "+"; arg = this.#next()) argv.push(arg);
    return async ({ shown }) => (await this.#command.run(argv.map((arg) => arg.replaceAll("{}", shown)))) === 0;
  }

  async #print(visit: Visit, end: string): Promise<boolean> {
    await this.#command.write(visit.shown + end);
    return true;
  }

  #take(arg: string): boolean {
    const found = this.#args[this.#at] === arg;
    if (found) this.#at++;
    return found;
  }

  #next(): string {
    const arg = this.#args[this.#at++];
    if (arg === undefined) throw new UsageError("missing argument");
    return arg;
  }
}

function sizeTest(text: string): Test {
  const match = /^([-+]?)([0-9]+)([ckMG]?)$/.exec(text);
  if (match === null) throw new UsageError(`invalid size '${text}'`);
  const unit = { "": 512, c: 1, k: 1024, M: 1024 ** 2, G: 1024 ** 3 }[match[3] ?? ""] ?? 1;
  const wanted = Number(match[2]);
  return ({ node }) => {
    const size = Math.ceil(sizeOf(node) / unit);
    return match[1] === "+" ? size > wanted : match[1] === "-" ? size < wanted : size === wanted;
  };
}

async function diskUsage(command: Invocation): Promise<number> {
  const { operands } = readOptions(command.args, "shakbc");
  const total = (node: TreeNode): number =>
    node.kind === "directory" ? [...node.entries.values()].reduce((sum, child) => sum + total(child), 0) : sizeOf(node);
  return command.each(operands.length === 0 ? ["."] : operands, async (path, operand) => {
    await command.write(`${Math.ceil(total(command.tree.get(path)) / 1024)}\t${operand}\n`);
  });
}
