/**
 * What `--from` names: a thread, a thread's checkpoint (`thread@checkpoint`), or a path: a tar archive of this machine, or a
 * directory. A directory is read where the fleet is; a gateway reads one for operators only.
 */

import { createReadStream, openAsBlob, statSync } from "node:fs";
import { resolve } from "node:path";
import type { ClientSeed } from "@sandlot/client";
import { SandlotError } from "@sandlot/contract";
import type { SeedInput } from "../fleet.ts";

export type SeedSource =
  | { readonly kind: "thread"; readonly thread: string; readonly checkpoint?: string }
  | { readonly kind: "archive"; readonly path: string }
  | { readonly kind: "directory"; readonly path: string };

/** A path begins with `/` or `.`: names of threads do not. */
export function parseSeedSource(text: string): SeedSource {
  if (/^[./]/.test(text)) return atPath(resolve(text));
  const [thread = "", ...rest] = text.split("@");
  return { kind: "thread", thread, ...(rest.length > 0 && { checkpoint: rest.join("@") }) };
}

function atPath(path: string): SeedSource {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats?.isFile() === true) return { kind: "archive", path };
  if (stats?.isDirectory() === true) return { kind: "directory", path };
  const problem = `${path} is neither an archive nor a directory`;
  throw new SandlotError("invalid_request", { field: "--from", problem });
}

export function seedOfFleet(source: SeedSource): SeedInput {
  if (source.kind === "archive") return { archive: createReadStream(source.path) };
  return plain(source);
}

export async function seedOfGateway(source: SeedSource): Promise<ClientSeed> {
  if (source.kind === "archive") return { archive: await openAsBlob(source.path) };
  return plain(source);
}

function plain(source: Exclude<SeedSource, { readonly kind: "archive" }>) {
  if (source.kind === "directory") return { directory: source.path };
  const { thread, checkpoint } = source;
  return { thread, ...(checkpoint !== undefined && { checkpoint }) };
}
