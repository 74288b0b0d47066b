/**
 * The terminals of a sandbox, through its daemon.
 */

import {
  foundSchema,
  type SandboxTerminals,
  type Terminal,
  type TerminalInfo,
  type TerminalOptions,
} from "@sandlot/contract";
import type { Calls } from "./calls.ts";
import { connectTerminal } from "./daemon-terminal.ts";
import * as replies from "./replies.ts";

export class DaemonTerminals implements SandboxTerminals {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  async open(options: TerminalOptions): Promise<Terminal> {
    const { terminalId, command, cwd, env, columns, rows } = options;
    const fields = { terminalId, command, cwd, env, columns, rows };
    const opened = await this.#calls.post(replies.terminalSchema, "/sandlot/terminals/open", fields);
    return this.attach(opened.terminalId);
  }

  attach(terminalId: string, options: { readonly fromOffset?: number } = {}): Promise<Terminal> {
    return this.#calls.attempt((wire) => connectTerminal(wire, terminalId, options.fromOffset));
  }

  list(): Promise<readonly TerminalInfo[]> {
    return this.#calls.get(replies.terminalsSchema, "/sandlot/terminals");
  }

  async close(terminalId: string): Promise<void> {
    await this.#calls.post(foundSchema, "/sandlot/terminals/close", { terminalId });
  }
}
