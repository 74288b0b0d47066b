/**
 * The records of objects, on disk, so that any process of the fleet finds them and a crash loses none.
 *
 * Invariants
 * - A directory below `objects/` with its final name holds a complete `object.json` and the object's pipes; it appears
 *   and goes by a rename.
 * - `object.json` is there before anything else of the object is, and goes after everything else is gone.
 * - `process.json` is there before the sandbox gets its configuration, and a sandbox without one ends by itself.
 */

import { existsSync, mkdirSync, readFileSync, renameSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { EngineRef } from "@sandlot/contract";
import { z } from "zod";
import type { Credentials, Place } from "../../../backend/backend.ts";
import { type Labels, labelsSchema } from "../../../backend/labels.ts";
import type { Account } from "../../../host/accounts/index.ts";
import { type Layout, type ObjectName, objectDirectory, PIPES } from "../../../host/layout.ts";
import { type KeptLimits, keptLimitsSchema } from "../../../host/limits/kept-limits.ts";
import type { Binding } from "../../../host/mounts/mounts.ts";
import { livenessOf, type ProcessId } from "../../../host/process-table.ts";
import type { ProcessIdentity } from "../../../world/world.ts";
import { makePipes } from "../engine/named-pipe.ts";
import { formatRef } from "./engine-ref.ts";

/** The intent. Never changes. */
export interface ObjectRecord {
  readonly labels: Labels;
  readonly place: Place;
  /** The daemon's first credentials. A bound blank has others, which its markers hold. */
  readonly credentials: Credentials;
  /** The limits that every attached process must enforce or report. */
  readonly limits: KeptLimits;
  readonly isolation: "bubblewrap" | "unsafe-process";
  /** Configured mounts. Without isolation, each attach maps these paths. */
  readonly mounts: readonly Binding[];
  /** Its own account; `null` when all sandboxes of the fleet share one. */
  readonly account: Account | null;
  /** The machine it lives on, and the process that makes it. */
  readonly machineId: string;
  readonly maker: ProcessIdentity;
}

/** The processes that were started. */
export interface ProcessRecord {
  readonly init: ProcessId;
  /** The process outside that waits for the init. */
  readonly monitor: ProcessId | null;
}

export interface LocalObject {
  readonly name: ObjectName;
  readonly ref: EngineRef;
  readonly record: ObjectRecord;
  readonly process: ProcessRecord | null;
  /** Nothing of the sandbox runs; the record stays only because a workspace is still in its slot. */
  readonly isRemains: boolean;
}

const processIdSchema = z.object({ pid: z.int().positive(), startTime: z.string() });
const processSchema = z.object({ init: processIdSchema, monitor: processIdSchema.nullable() });
const objectSchema = z.object({
  labels: labelsSchema,
  place: z.string().regex(/^(home$|slot:)/),
  credentials: z.object({ generation: z.int(), token: z.string() }),
  limits: keptLimitsSchema,
  isolation: z.enum(["bubblewrap", "unsafe-process"]),
  mounts: z.array(z.object({ from: z.string(), to: z.string(), readOnly: z.boolean() })),
  // Records of an earlier release have none.
  account: z.object({ uid: z.int(), gid: z.int() }).nullable().default(null),
  machineId: z.string(),
  maker: z.object({ bootId: z.string(), pidNamespace: z.string(), pid: z.int(), startTime: z.string() }),
});

const REMAINS = "remains";
const COMING = ".coming-";
const GOING = ".going-";
/** A maker renames its directory at once. The directory of another pid namespace is judged by its age alone. */
const COMING_MAX_MS = 60_000;

export class ObjectStore {
  readonly #layout: Layout;
  readonly #self: ProcessIdentity;
  /**
   * Records that were read before. They never change, and a name is not used twice: valid while the directory exists.
   */
  readonly #known = new Map<ObjectName, Pick<LocalObject, "ref" | "record" | "process">>();

  constructor(layout: Layout, self: ProcessIdentity) {
    this.#layout = layout;
    this.#self = self;
  }

  /** Records the intent to make a sandbox, and makes its pipes. */
  async intend(name: ObjectName, record: ObjectRecord): Promise<void> {
    const coming = join(this.#layout.objects, `${this.#coming(this.#self)}-${name}`);
    mkdirSync(coming, { mode: 0o700 });
    const [pipes, written] = await Promise.allSettled([
      makePipes(PIPES.map((pipe) => join(coming, pipe))),
      writeFile(join(coming, "object.json"), JSON.stringify(record), { mode: 0o600, flush: true }),
    ]);
    try {
      if (pipes.status === "rejected") throw pipes.reason;
      if (written.status === "rejected") throw written.reason;
      renameSync(coming, objectDirectory(this.#layout, name));
    } catch (error) {
      await rm(coming, { recursive: true, force: true });
      throw error;
    }
  }

  /** Records the process. Watchers of the directory get a change. */
  started(name: ObjectName, process: ProcessRecord): void {
    const directory = objectDirectory(this.#layout, name);
    const path = join(directory, "process.json");
    writeFileSync(`${path}~`, JSON.stringify(process), { mode: 0o600 });
    renameSync(`${path}~`, path);
    // A change inside the directory is invisible to a watch of its parent; this one is visible.
    const now = statSync(directory).mtime;
    utimesSync(directory, now, now);
  }

  async get(name: ObjectName): Promise<LocalObject | null> {
    const directory = objectDirectory(this.#layout, name);
    const known = this.#known.get(name) ?? this.#read(name, directory);
    // Read before the directory: if the directory is removed meanwhile, only its absence counts.
    const isRemains = existsSync(join(directory, REMAINS));
    if (known === null || !existsSync(directory)) {
      this.#known.delete(name);
      return null;
    }
    if (known.process !== null) this.#known.set(name, known);
    return { name, ...known, isRemains };
  }

  /** Nothing of the sandbox runs, but its slot is still in use. */
  async markRemains(name: ObjectName): Promise<void> {
    try {
      await writeFile(join(objectDirectory(this.#layout, name), REMAINS), "", { mode: 0o600 });
    } catch (error) {
      // Another process has forgotten it, so nothing remains.
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
  }

  async names(): Promise<readonly ObjectName[]> {
    const entries = await readdir(this.#layout.objects);
    // A process may have been killed while it removed these, and removing them twice does no harm.
    for (const name of entries) if (name.startsWith(GOING)) await this.#removeGoing(name);
    const names = entries.filter((name) => !name.startsWith("."));
    if (this.#known.size > names.length) this.#forgetOthers(new Set(names));
    return names;
  }

  /** Forgets the object. Only when all of its parts are removed. */
  async forget(name: ObjectName): Promise<void> {
    try {
      await rename(objectDirectory(this.#layout, name), join(this.#layout.objects, GOING + name));
    } catch (error) {
      // Gone, or another process is removing it.
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "ENOENT" && code !== "ENOTEMPTY" && code !== "EEXIST") throw error;
    }
    this.#known.delete(name);
    await this.#removeGoing(GOING + name);
  }

  /** Removes what dead processes had begun to write or to remove. */
  async sweep(nowMs: number): Promise<void> {
    for (const name of await readdir(this.#layout.objects)) {
      const path = join(this.#layout.objects, name);
      if (name.startsWith(GOING) || (name.startsWith(COMING) && (await this.#isAbandoned(path, name, nowMs))))
        await rm(path, { recursive: true, force: true });
    }
  }

  #removeGoing(name: string): Promise<void> {
    return rm(join(this.#layout.objects, name), { recursive: true, force: true });
  }

  #read(name: ObjectName, directory: string): Pick<LocalObject, "ref" | "record" | "process"> | null {
    const record = readJson(join(directory, "object.json"), objectSchema) as ObjectRecord | null;
    if (record === null) return null;
    const process = readJson(join(directory, "process.json"), processSchema);
    const { bootId } = record.maker;
    return { ref: formatRef(name, process === null ? null : { bootId, process: process.init }), record, process };
  }

  /** Forgets objects that other processes have ended. */
  #forgetOthers(names: ReadonlySet<ObjectName>): void {
    for (const name of [...this.#known.keys()]) if (!names.has(name)) this.#known.delete(name);
  }

  /** Names the maker, so that other processes know at once when it is dead. */
  #coming({ pidNamespace, pid, startTime }: ProcessIdentity): string {
    return `${COMING}${pidNamespace.replace(/\D/g, "")}.${pid}.${startTime}`;
  }

  async #isAbandoned(path: string, name: string, nowMs: number): Promise<boolean> {
    const [, pid, startTime] = name.split(/[.-]/).slice(2);
    const process = { pid: Number(pid), startTime: startTime ?? "" };
    const isOurs = name.startsWith(`${this.#coming({ ...this.#self, ...process })}-`);
    if (isOurs) return livenessOf(process) === "dead";
    return nowMs - ((await stat(path).catch(() => null))?.mtimeMs ?? nowMs) > COMING_MAX_MS;
  }
}

function readJson<T>(path: string, schema: z.ZodType<T>): T | null {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
  return schema.parse(JSON.parse(text));
}
