/**
 * The inside of a sandbox: one file, the journal. An append writes an entry, a literal grep searches one. The engine
 * checks generation and token with every use.
 */

import type { Sandbox } from "@sandlot/contract";
import type { Target } from "../../../packages/fleet/src/backend/backend.ts";
import { partialSandbox } from "../../../packages/fleet/src/testing/partial-sandbox.ts";
import type { Entry } from "../wire.ts";
import type { EngineConnection } from "./engine-connection.ts";

export const JOURNAL = "/mnt/user-data/workspace/journal";

export function journalSandbox(engine: EngineConnection, attachment: number, target: Target): Sandbox {
  return partialSandbox(target.sandboxId, target.generation, {
    files: {
      append: (_, content) => engine.ask("append", [attachment, entryOf(content)]),
      grep: async (path, pattern) => {
        const entry = entryOf(pattern);
        const found = await engine.ask("grep", [attachment, entry]);
        const matches = found ? [{ path, lineNumber: 1, line: entry.token }] : [];
        return { matches, truncated: false, skippedFiles: 0, skippedLines: 0 };
      },
    },
  });
}

export function lineOf(entry: Entry): string {
  return JSON.stringify(entry);
}

function entryOf(content: string | Uint8Array): Entry {
  return JSON.parse(String(content));
}
