/** Starts `sqlite-child.ts`, reads its output, and leaves none behind. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { asOrdinaryUser, ordinaryNode, seenByOrdinaryUser } from "../support/ordinary-user.ts";

const SCRIPT = fileURLToPath(new URL("./sqlite-child.ts", import.meta.url));

export interface Child {
  readonly process: ChildProcess;
  /** Its output so far. */
  readonly said: readonly unknown[];
  /** Resolves when it has printed `count` values, rejects when it ends before. */
  hasSaid(count: number): Promise<void>;
  readonly ended: Promise<void>;
}

export function startChild(
  command: string,
  path: string,
  options: { argument?: string; ordinary?: boolean } = {},
): Child {
  const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env;
  const node = (program: string, script: string) =>
    [program, "--conditions=sandlot-source", script, command, path, options.argument ?? ""] as const;
  const [program, ...args] =
    options.ordinary === true
      ? asOrdinaryUser(...node(ordinaryNode(), seenByOrdinaryUser(SCRIPT)))
      : node(process.execPath, SCRIPT);
  const child = spawn(program, args, { env, stdio: ["ignore", "pipe", "inherit"] });
  const said: unknown[] = [];
  const lines = createInterface({ input: child.stdout });
  let wake = () => {};
  lines.on("line", (line) => {
    said.push(JSON.parse(line));
    wake();
  });
  let over = false;
  const ended = Promise.all([once(child, "exit"), once(lines, "close")]).then(() => {
    over = true;
    wake();
  });
  return {
    process: child,
    said,
    ended,
    async hasSaid(count) {
      while (said.length < count) {
        if (over) throw new Error(`The child ended after saying ${JSON.stringify(said)}.`);
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    },
  };
}
