/** `sandlot serve` as a separate process on the local backend, in a temporary directory. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { SandlotClient } from "@sandlot/client";

export interface ServedGateway extends AsyncDisposable {
  readonly url: string;
  readonly key: string;
  readonly client: SandlotClient;
}

const MAIN = fileURLToPath(new URL("../../packages/fleet/src/cli/main.ts", import.meta.url));

export async function serveGateway(): Promise<ServedGateway> {
  const home = mkdtempSync(join(tmpdir(), "sandlot-served-"));
  // A blank that is made meanwhile would take a processor.
  writeFileSync(join(home, "sandlot.yaml"), "pool: {}\n");
  const { SANDLOT_CONFIG: _, ...inherited } = process.env;
  const child = startNode([MAIN, "serve", "--port", "0", "--json", "--destroy"], { ...inherited, SANDLOT_HOME: home });
  const { listening: url } = JSON.parse(await firstLine(child)) as { listening: string };
  const key = readFileSync(join(home, "operator.key"), "utf8").trim();
  const client = new SandlotClient({ url, apiKey: key });
  return {
    ...{ url, key, client },
    async [Symbol.asyncDispose]() {
      for (const { thread } of await client.listSandboxes())
        if (thread !== null) await client.deleteThread(thread, { force: true });
      await end(child);
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** Node on a file or program text, from source, with readable output. */
export function startNode(
  args: readonly string[],
  environment: NodeJS.ProcessEnv,
  stdin: "ignore" | "pipe" = "ignore",
): ChildProcess {
  return spawn(process.execPath, ["--conditions=sandlot-source", ...args], {
    env: environment,
    stdio: [stdin, "pipe", "inherit"],
  });
}

export async function firstLine(child: ChildProcess): Promise<string> {
  if (child.stdout === null) throw new Error("The process has no output to read.");
  const [text] = (await once(child.stdout.setEncoding("utf8"), "data")) as [string];
  return text.split("\n")[0] ?? "";
}

export async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGTERM");
  await ended;
}
