/**
 * The double in place of a sandbox's daemon: started like the daemon, with its configuration on one descriptor and its
 * ready line on another.
 */

import { readFileSync, writeSync } from "node:fs";
import { createConnection } from "node:net";
import { createDouble } from "./double.ts";

interface Config {
  readonly sandboxId: string;
  readonly generation: number;
  readonly listen:
    | { readonly path: string }
    | { readonly fd: number }
    | { readonly host: string; readonly port: number };
  readonly ready?: { readonly fd: number } | { readonly path: string };
}

const at = process.argv.indexOf("--config-fd");
const config = JSON.parse(readFileSync(Number(process.argv[at + 1]), "utf8").split("\n")[0] ?? "") as Config;
const server = createDouble({ onTaken: () => {}, plan: { current: "0.h.none" } });
server.listen(config.listen, () => {
  const { sandboxId, generation, ready } = config;
  const line = `${JSON.stringify({ ready: true, pid: process.pid, sandboxId, generation, port: null })}\n`;
  if (ready === undefined) return;
  if ("fd" in ready) writeSync(ready.fd, line);
  else createConnection(ready.path).end(line);
});
