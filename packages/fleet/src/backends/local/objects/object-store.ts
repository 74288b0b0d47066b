/**
 * What is known of each object, on disk, so that any process of the fleet finds it and a crash loses nothing.
 *
 * Invariants
 * - A directory below `objects/` with its final name holds a complete `object.json` and the object's pipes; it appears and
 *   goes by a rename.
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

/** What was asked for. Never changes. */
export interface ObjectRecord {
  readonly labels: Labels;
  readonly place: Place;
  /** What the daemon was started with. A blank that was bound has others, which its markers know. */
  readonly credentials: Credentials;
  /** The disk budget, which others who attach have to keep as well, and what they have to tell of. */
  readonly limits: KeptLimits;
  readonly isolation: "bubblewrap" | "unsafe-process";
  /** What is configured to be seen inside. Where nothing isolates, whoever attaches maps these paths. */
  readonly mounts: readonly Binding[];
  /** What it runs as, where that is its own; `null` when all sandboxes of the fleet share one. */
  readonly account: Account | null;
  /** The machine it lives on, and the process that makes it. */
  readonly machineId: string;
  readonly maker: ProcessIdentity;
}

/** What came of it. */
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
  /** Nothing of it runs any more; it is kept only because a workspace is still in its slot. */
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
  // What an earlier release has made has none.
  account: z.object({ uid: z.int(), gid: z.int() }).nullable().default(null),
  machineId: z.string(),
  maker: z.object({ bootId: z.string(), pidNamespace: z.string(), pid: z.int(), startTime: z.string() }),
});

const REMAINS = "remains";
const COMING = ".coming-";
const GOING = ".going-";
/** Whoever makes a directory renames it at once. Of one that another pid namespace has made, only its age tells. */
const COMING_MAX_MS = 60_000;

export class ObjectStore {
  readonly #layout: Layout;
  readonly #self: ProcessIdentity;
  /** What was read once. It does not change, and a name is not used twice: it is true while the directory is there. */
  readonly #known = new Map<ObjectName, Pick<LocalObject, "ref" | "record" | "process">>();

  constructor(layout: Layout, self: ProcessIdentity) {
    this.#layout = layout;
    this.#self = self;
  }

  /** Writes down what is about to be made, and makes the pipes that go with it. */
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

  /** Writes down what process it is. Whoever watches the objects hears of it. */
  started(name: ObjectName, process: ProcessRecord): void {
    const directory = objectDirectory(this.#layout, name);
    const path = join(directory, "process.json");
    writeFileSync(`${path}~`, JSON.stringify(process), { mode: 0o600 });
    renameSync(`${path}~`, path);
    // A change inside the directory is not seen from above; this one is.
    const now = statSync(directory).mtime;
    utimesSync(directory, now, now);
  }

  async get(name: ObjectName): Promise<LocalObject | null> {
    const directory = objectDirectory(this.#layout, name);
    const known = this.#known.get(name) ?? this.#read(name, directory);
    // Before the directory: of one that goes meanwhile, only that it has gone is true.
    const isRemains = existsSync(join(directory, REMAINS));
    if (known === null || !existsSync(directory)) {
      this.#known.delete(name);
      return null;
    }
    if (known.process !== null) this.#known.set(name, known);
    return { name, ...known, isRemains };
  }

  /** Nothing of it runs any more, but its slot is not free yet. */
  async markRemains(name: ObjectName): Promise<void> {
    try {
      await writeFile(join(objectDirectory(this.#layout, name), REMAINS), "", { mode: 0o600 });
    } catch (error) {
      // Forgotten by somebody else, so nothing remains.
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
  }

  async names(): Promise<readonly ObjectName[]> {
    const entries = await readdir(this.#layout.objects);
    // Whoever was removing these may have been killed over it, and removing them twice does no harm.
    for (const name of entries) if (name.startsWith(GOING)) await this.#removeGoing(name);
    const names = entries.filter((name) => !name.startsWith("."));
    if (this.#known.size > names.length) this.#forgetOthers(new Set(names));
    return names;
  }

  /** Forgets the object. Only when nothing of it is left. */
  async forget(name: ObjectName): Promise<void> {
    try {
      await rename(objectDirectory(this.#layout, name), join(this.#layout.objects, GOING + name));
    } catch (error) {
      // Gone, or somebody else is at it.
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "ENOENT" && code !== "ENOTEMPTY" && code !== "EEXIST") throw error;
    }
    this.#known.delete(name);
    await this.#removeGoing(GOING + name);
  }

  /** Removes what somebody who died was about to write or to remove. */
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

  /** What other processes have ended. */
  #forgetOthers(names: ReadonlySet<ObjectName>): void {
    for (const name of [...this.#known.keys()]) if (!names.has(name)) this.#known.delete(name);
  }

  /** Says who is at it, so that nobody has to wait to know that it was given up. */
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
