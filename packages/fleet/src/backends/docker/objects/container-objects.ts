/**
 * The records of containers on this machine: first the intent, before anything is made, then the container's id.
 *
 *   containers/<sandboxId>-<generation>.json
 *   containers/<sandboxId>-<generation>.json.<process>~     about to become the file above, by this process
 *
 * Invariants
 * - Everything that is made for a container follows from its name, so any process that finds the file can remove all of
 *   it.
 * - A file is replaced as a whole, by a rename. It is there before anything else of the container is, names the
 *   container before that is started, and goes after everything else is gone.
 */

import { mkdirSync } from "node:fs";
import { access, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { EngineRef, FleetId } from "@sandlot/contract";
import { z } from "zod";
import type { Credentials, Place } from "../../../backend/backend.ts";
import { type Labels, labelsSchema } from "../../../backend/labels.ts";
import type { Account } from "../../../host/accounts/index.ts";
import { type Layout, makeLayout, type ObjectName } from "../../../host/layout.ts";
import { type KeptLimits, keptLimitsSchema } from "../../../host/limits/kept-limits.ts";
import type { ProcessIdentity, World } from "../../../world/world.ts";
import type { Transport } from "../container/transport.ts";
import { formatRef } from "./labels.ts";

/** The intent. Never changes. */
export interface ObjectRecord {
  readonly labels: Labels;
  readonly place: Place;
  /** The daemon's first credentials. A bound blank has others, which its markers hold. */
  readonly credentials: Credentials;
  /** The transport to its daemon. */
  readonly transport: Transport;
  /** Its own account; `null` when all sandboxes of the fleet share one. */
  readonly account: Account | null;
  /** The limits that it was made with; `null` in records of an earlier release. */
  readonly limits: KeptLimits | null;
  /** The process that makes it. */
  readonly maker: ProcessIdentity;
}

/** The container that was made. */
export interface ContainerRecord {
  readonly containerId: string;
  readonly engineId: string;
  /** The published port of its daemon; `null` with a socket, and until it is known. */
  readonly hostPort: number | null;
}

export interface ContainerObject {
  readonly name: ObjectName;
  readonly ref: EngineRef;
  readonly record: ObjectRecord;
  readonly container: ContainerRecord | null;
  /** The container is gone; the record stays only because a workspace is still in its slot. */
  readonly isRemains: boolean;
}

const fileSchema = z.object({
  record: z.object({
    labels: labelsSchema,
    place: z.string().regex(/^(home$|slot:)/),
    credentials: z.object({ generation: z.int(), token: z.string() }),
    transport: z.enum(["socket", "port"]).default("socket"),
    // Records of an earlier release have none.
    account: z.object({ uid: z.int(), gid: z.int() }).nullable().default(null),
    limits: keptLimitsSchema.nullable().default(null),
    maker: z.object({ bootId: z.string(), pidNamespace: z.string(), pid: z.int(), startTime: z.string() }),
  }),
  container: z
    .object({ containerId: z.string(), engineId: z.string(), hostPort: z.int().nullable().default(null) })
    .nullable(),
  isRemains: z.boolean(),
});

const SUFFIX = ".json";
/** A writer renames its file at once. */
const UNFINISHED_MAX_MS = 60_000;

export function dockerLayout(home: string, fleetId: FleetId, runtimeDirectory: string): Layout {
  const layout = makeLayout(home, fleetId, runtimeDirectory);
  const objects = join(layout.root, "containers");
  mkdirSync(objects, { recursive: true, mode: 0o700 });
  return { ...layout, objects };
}

/** The whole identity: another process may have the same pid, later or in another namespace. */
function draftEnding({ pid, startTime, pidNamespace, bootId }: ProcessIdentity): string {
  return `.${[pid, startTime, pidNamespace, bootId].join(".")}~`;
}

/** `null` for a draft of an earlier release. */
function writerOf(file: string): ProcessIdentity | null {
  const [, pid, startTime = "", pidNamespace = "", bootId = ""] =
    /\.json\.(\d+)\.(\d*)\.([^.]*)\.([^.]*)~$/.exec(file) ?? [];
  return pid === undefined ? null : { pid: Number(pid), startTime, pidNamespace, bootId };
}

export class ContainerObjects {
  /** The fleet's directory. */
  readonly root: string;
  readonly #directory: string;
  readonly #world: Pick<World, "identity" | "processLiveness">;
  /** The ending of this process's drafts. */
  readonly #ending: string;

  constructor(layout: Layout, world: Pick<World, "identity" | "processLiveness">) {
    this.root = layout.root;
    this.#directory = layout.objects;
    this.#world = world;
    this.#ending = draftEnding(world.identity);
  }

  /** Records the intent to make a container. */
  intend(name: ObjectName, record: ObjectRecord): Promise<void> {
    return this.#write(name, { record, container: null, isRemains: false });
  }

  /** Records the container's id. Rejects with ENOENT when another process has forgotten the object meanwhile. */
  async made(name: ObjectName, record: ObjectRecord, container: ContainerRecord): Promise<void> {
    await access(this.path(name));
    await this.#write(name, { record, container, isRemains: false });
  }

  /** The container is gone, but its slot is still in use. */
  async markRemains(name: ObjectName): Promise<void> {
    const object = await this.get(name);
    if (object !== null) await this.#write(name, { ...object, isRemains: true });
  }

  async get(name: ObjectName): Promise<ContainerObject | null> {
    let text: string;
    try {
      text = await readFile(this.path(name), "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
      throw error;
    }
    const { record, container, isRemains } = fileSchema.parse(JSON.parse(text));
    const ref = formatRef({ name, containerId: container?.containerId ?? null });
    return { name, ref, record: record as unknown as ObjectRecord, container, isRemains };
  }

  /** The file exists as long as the object does. */
  path(name: ObjectName): string {
    return join(this.#directory, name + SUFFIX);
  }

  async names(): Promise<readonly ObjectName[]> {
    const files = await readdir(this.#directory);
    return files.filter((file) => file.endsWith(SUFFIX)).map((file) => file.slice(0, -SUFFIX.length));
  }

  /** Forgets the object. Only when all of its parts are removed. */
  async forget(name: ObjectName): Promise<void> {
    await rm(this.path(name), { force: true });
    await this.#removeUnfinished((file) => file.startsWith(name + SUFFIX));
  }

  /** Removes other processes' drafts for a sandbox, whose maker is dead. */
  async clear(sandboxId: string): Promise<void> {
    await this.#removeUnfinished((file) => file.startsWith(`${sandboxId}-`) && !file.endsWith(this.#ending));
  }

  /** Removes drafts of dead processes, and drafts that are too old. */
  async sweep(nowMs: number): Promise<void> {
    for (const file of await readdir(this.#directory)) {
      if (file.endsWith(SUFFIX)) continue;
      const path = join(this.#directory, file);
      const writer = writerOf(file);
      const isDead = writer !== null && this.#world.processLiveness(writer) === "dead";
      const writtenAt = (await stat(path).catch(() => null))?.mtimeMs ?? nowMs;
      if (isDead || nowMs - writtenAt > UNFINISHED_MAX_MS) await rm(path, { force: true });
    }
  }

  async #removeUnfinished(isMeant: (file: string) => boolean): Promise<void> {
    for (const file of await readdir(this.#directory))
      if (!file.endsWith(SUFFIX) && isMeant(file)) await rm(join(this.#directory, file), { force: true });
  }

  async #write(name: ObjectName, content: Pick<ContainerObject, "record" | "container" | "isRemains">): Promise<void> {
    const { record, container, isRemains } = content;
    const path = this.path(name);
    const coming = path + this.#ending;
    try {
      await writeFile(coming, JSON.stringify({ record, container, isRemains }), { mode: 0o600 });
      await rename(coming, path);
    } catch (error) {
      await rm(coming, { force: true });
      throw error;
    }
  }
}
