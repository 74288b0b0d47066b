/**
 * What a provisioner cannot keep for a fleet, as files of the fleet's home:
 *
 *   remote/objects/<id>.json          labels, credentials, markers and variables; there before the sandbox is
 *   remote/threads/<threadKey>.json   a thread that has files at the provisioner, and the last generation that used them
 *
 * Invariants
 * - A file appears whole: it is written beside its place and renamed.
 * - Files are 0600 in directories that are 0700: they hold tokens and variables.
 * - A sandbox without its file belongs to no thread; it is listed, and removed as an unknown one.
 */

import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Generation, SandlotError, type ThreadId, type Token, type UserId } from "@sandlot/contract";
import { z } from "zod";
import { type Labels, labelsSchema, type Marker } from "../../backend/labels.ts";
import { isMissing } from "../../world/disk-trouble.ts";
import { tryJson } from "../../world/try-json.ts";
import type { World } from "../../world/world.ts";

const markerSchema = z.object({
  ...{ sandboxId: z.string(), user: z.string(), thread: z.string(), generation: z.int(), token: z.string() },
  ...{ blueprint: z.string(), blueprintHash: z.string() },
});

const recordSchema = z.object({
  labels: labelsSchema,
  token: z.string(),
  markers: z.array(markerSchema),
  environment: z.record(z.string(), z.string()),
  isMade: z.boolean(),
});

const threadSchema = z.object({ user: z.string(), thread: z.string(), generation: z.int() });

export interface RemoteRecord {
  readonly labels: Labels;
  readonly token: Token;
  readonly markers: readonly Marker[];
  /** The variables of every command. */
  readonly environment: Readonly<Record<string, string>>;
  /** The sandbox has answered. Before that its absence at the provisioner is no death. */
  readonly isMade: boolean;
}

export interface RemoteThread {
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly generation: Generation;
}

export class RemoteRecords {
  readonly #objects: string;
  readonly #threads: string;
  readonly #world: Pick<World, "randomHex">;

  /** `root` is the fleet's directory. */
  constructor(root: string, world: Pick<World, "randomHex">) {
    this.#objects = join(root, "remote", "objects");
    this.#threads = join(root, "remote", "threads");
    this.#world = world;
  }

  async object(id: string): Promise<RemoteRecord | null> {
    const record = await read(join(this.#objects, `${id}.json`), recordSchema);
    return record as RemoteRecord | null;
  }

  keepObject(id: string, record: RemoteRecord): Promise<void> {
    return this.#write(this.#objects, id, record);
  }

  forgetObject(id: string): Promise<void> {
    return rm(join(this.#objects, `${id}.json`), { force: true });
  }

  /** The ids of all objects that have a file. */
  allObjectIds(): Promise<readonly string[]> {
    return namesIn(this.#objects);
  }

  /** The ids of a sandbox's objects that have a file. */
  async objectIds(sandboxId: string): Promise<readonly string[]> {
    return (await namesIn(this.#objects)).filter((id) => id.split("-")[2] === sandboxId);
  }

  async thread(threadKey: string): Promise<RemoteThread | null> {
    return (await read(join(this.#threads, `${threadKey}.json`), threadSchema)) as RemoteThread | null;
  }

  async threads(): Promise<readonly RemoteThread[]> {
    const found = await Promise.all((await namesIn(this.#threads)).map((threadKey) => this.thread(threadKey)));
    return found.filter((one) => one !== null);
  }

  keepThread(threadKey: string, thread: RemoteThread): Promise<void> {
    return this.#write(this.#threads, threadKey, thread);
  }

  forgetThread(threadKey: string): Promise<void> {
    return rm(join(this.#threads, `${threadKey}.json`), { force: true });
  }

  async #write(directory: string, name: string, value: object): Promise<void> {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const coming = join(directory, `.${name}.${this.#world.randomHex(6)}`);
    await writeFile(coming, JSON.stringify(value), { mode: 0o600 });
    await rename(coming, join(directory, `${name}.json`));
  }
}

async function namesIn(directory: string): Promise<readonly string[]> {
  try {
    const files = await readdir(directory);
    return files.flatMap((file) => (file.endsWith(".json") && !file.startsWith(".") ? [file.slice(0, -5)] : []));
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

async function read<T>(path: string, schema: z.ZodType<T>): Promise<T | null> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
  const parsed = schema.safeParse(tryJson(text));
  if (parsed.success) return parsed.data;
  throw new SandlotError("store_corrupt", { path, problem: "it is not a record of the remote backend" });
}
