/**
 * The inside of a sandbox: one file, the journal. An append writes an entry, a literal grep looks for one. The engine
 * checks generation and token with every use.
 */

import type { Sandbox, SandboxFiles } from "@sandlot/contract";
import type { Target } from "../../../packages/fleet/src/backend/backend.ts";
import type { Entry } from "../wire.ts";
import type { EngineConnection } from "./engine-connection.ts";

export const JOURNAL = "/mnt/user-data/workspace/journal";

export class JournalSandbox implements Sandbox {
  readonly id: Target["sandboxId"];
  readonly generation: Target["generation"];
  readonly files: SandboxFiles;

  constructor(engine: EngineConnection, attachment: number, target: Target) {
    this.id = target.sandboxId;
    this.generation = target.generation;
    this.files = {
      append: (_, content) => engine.ask("append", [attachment, entryOf(content)]),
      grep: async (path, pattern) => {
        const entry = entryOf(pattern);
        const found = await engine.ask("grep", [attachment, entry]);
        return { matches: found ? [{ path, lineNumber: 1, line: entry.token }] : [], truncated: false };
      },
      read: unused,
      readText: unused,
      write: unused,
      mkdir: unused,
      rename: unused,
      remove: unused,
      stat: unused,
      list: unused,
      glob: unused,
    };
  }

  exec(): Promise<never> {
    return unused();
  }
}

export function lineOf(entry: Entry): string {
  return JSON.stringify(entry);
}

function entryOf(content: string | Uint8Array): Entry {
  return JSON.parse(String(content));
}

function unused(): Promise<never> {
  return Promise.reject(new Error("These tests do not use this."));
}
