/** `sandlot login` and `logout`: store a gateway and a key for every later command of this account. */

import { SandlotClient } from "@sandlot/client";
import { SandlotError } from "@sandlot/contract";
import { removeLogin, writeLogin } from "./login.ts";
import { checkUrl } from "./target.ts";
import { printJson, type Terminal } from "./terminal.ts";

/** A key on the command line would be in the history and in `ps`: it comes from the environment or stdin. */
export async function loginCommand(terminal: Terminal, url: string, options: { json: boolean }): Promise<void> {
  checkUrl(url, "url");
  const apiKey = terminal.environment.SANDLOT_API_KEY || (await keyFromInput(terminal));
  const { scope, user } = await new SandlotClient({ url, apiKey }).key();
  const path = await writeLogin({ url, apiKey }, terminal.environment);
  if (options.json) return printJson(terminal, { url, scope, user, file: path });
  const who = user === null ? scope : `${scope} ${user}`;
  terminal.out(`Commands now ask ${url} (${who}); \`sandlot logout\` ends that. The key is in ${path}\n`);
}

export async function logoutCommand(terminal: Terminal, options: { json: boolean }): Promise<void> {
  const had = await removeLogin(terminal.environment);
  if (options.json) printJson(terminal, { loggedOut: had });
  else terminal.out(had ? "Logged out; commands use a fleet of their own again.\n" : "There was no login.\n");
}

async function keyFromInput(terminal: Terminal): Promise<string> {
  const { stdin } = terminal;
  if (stdin.isTTY) terminal.error("Key (not shown): ");
  const text = stdin.isTTY ? await typed(stdin) : await piped(stdin);
  if (stdin.isTTY) terminal.error("\n");
  const key = text.trim();
  if (key !== "") return key;
  const problem = "no key was given: type it, pipe it in, or set SANDLOT_API_KEY";
  throw new SandlotError("invalid_request", { field: "key", problem });
}

const KEY_MAX = 1_000;

async function piped(stdin: NodeJS.ReadStream): Promise<string> {
  let text = "";
  for await (const piece of stdin) {
    text += String(piece);
    if (text.length > KEY_MAX) break;
  }
  return text.slice(0, KEY_MAX);
}

/** One line, without echo. */
function typed(stdin: NodeJS.ReadStream): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    const done = (finish: () => void) => {
      stdin.off("data", onData);
      stdin.setRawMode(false);
      stdin.pause();
      finish();
    };
    const onData = (bytes: Buffer) => {
      for (const letter of bytes.toString("utf8")) {
        if (letter === "\r" || letter === "\n") return done(() => resolve(text));
        if (letter === "\x03" || letter === "\x04") return done(() => reject(noKey()));
        text = letter === "\x7f" ? text.slice(0, -1) : (text + letter).slice(0, KEY_MAX);
      }
    };
    stdin.setRawMode(true);
    stdin.on("data", onData);
    stdin.resume();
  });
}

function noKey(): SandlotError {
  return new SandlotError("invalid_request", { field: "key", problem: "none was typed" });
}
