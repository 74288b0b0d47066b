/**
 * Initial files of the workspace. Supported are files and directories with their content; entries that would read the
 * application's own disk, the network or other machines are refused by name.
 */

import type { Entry, Manifest } from "@openai/agents/sandbox";
import { DEFAULT_CWD, type SandboxFiles, SandlotError } from "@sandlot/contract";
import { absolutePath, isWithin } from "../tools/paths.ts";

export function checkManifest({ entries }: Manifest): void {
  for (const [path, entry] of Object.entries(entries)) checkEntry(path, entry);
}

export async function writeManifest(files: SandboxFiles, { entries }: Pick<Manifest, "entries">): Promise<void> {
  for (const [path, entry] of Object.entries(entries)) await writeEntry(files, path, entry);
}

export async function writeEntry(files: SandboxFiles, path: string, entry: Entry): Promise<void> {
  checkEntry(path, entry);
  const absolute = absolutePath(path);
  if (entry.type === "file") await files.write(absolute, entry.content);
  if (entry.type !== "dir") return;
  await files.mkdir(absolute);
  for (const [name, child] of Object.entries(entry.children ?? {})) await writeEntry(files, `${path}/${name}`, child);
}

function checkEntry(path: string, entry: Entry): void {
  const field = `manifest.entries[${JSON.stringify(path)}]`;
  if (!isWithin(absolutePath(path), DEFAULT_CWD))
    throw new SandlotError("invalid_request", { field, problem: `it is not below ${DEFAULT_CWD}` });
  if (entry.type === "dir")
    for (const [name, child] of Object.entries(entry.children ?? {})) checkEntry(`${path}/${name}`, child);
  else if (entry.type !== "file")
    throw new SandlotError("invalid_request", { field, problem: `entries of type ${entry.type} are not supported` });
}
