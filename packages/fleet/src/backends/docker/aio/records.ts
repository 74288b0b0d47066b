/**
 * Records of a container whose image has its own server, with what that server cannot store: the key it was started
 * with, the variables of commands, and the present generation and token of the sandbox.
 *
 *   aio/<sandboxId>-<generation>.json    the key and the variables; there before the container is
 *   aio/<sandboxId>-<generation>.bound   the credentials that a blank was bound to
 *
 * Invariants
 * - A server of the AIO API knows no generation. So these files hold the present one: the credentials that the object
 *   was made with until it is bound, then those in `.bound`.
 * - A blank is bound once. Of two that try, the first file wins; the file appears complete.
 */

import { mkdirSync } from "node:fs";
import { link, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Generation, Token } from "@sandlot/contract";
import { z } from "zod";
import type { Credentials } from "../../../backend/backend.ts";
import type { Layout, ObjectName } from "../../../host/layout.ts";
import type { World } from "../../../world/world.ts";

export interface AioRecord {
  /** The key that the server requires of every client. */
  readonly apiKey: string;
  /** The variables of every command. */
  readonly environment: Readonly<Record<string, string>>;
}

const recordSchema = z.object({ apiKey: z.string(), environment: z.record(z.string(), z.string()) });
const boundSchema = z.object({ generation: z.int(), token: z.string() });
const KEY_BYTES = 24;

export class AioRecords {
  readonly #directory: string;
  readonly #world: World;

  constructor(layout: Pick<Layout, "root">, world: World) {
    this.#directory = join(layout.root, "aio");
    this.#world = world;
  }

  /** Generates a key, and writes it with the rest. */
  async make(name: ObjectName, environment: AioRecord["environment"]): Promise<AioRecord> {
    const record = { apiKey: this.#world.randomHex(KEY_BYTES), environment };
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    await writeFile(this.#path(name, "json"), JSON.stringify(record), { mode: 0o600 });
    return record;
  }

  async get(name: ObjectName): Promise<AioRecord | null> {
    const text = await this.#read(name, "json");
    return text === null ? null : recordSchema.parse(JSON.parse(text));
  }

  /** The credentials that a blank was bound to; `null` while it is unbound. */
  async bound(name: ObjectName): Promise<Credentials | null> {
    const text = await this.#read(name, "bound");
    if (text === null) return null;
    const { generation, token } = boundSchema.parse(JSON.parse(text));
    return { generation: generation as Generation, token: token as Token };
  }

  /** Returns the credentials that it is bound to now, also when another process has bound it. */
  async bind(name: ObjectName, { generation, token }: Credentials): Promise<Credentials> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const coming = this.#path(name, `${this.#world.randomHex(6)}~`);
    try {
      await writeFile(coming, JSON.stringify({ generation, token }), { mode: 0o600 });
      await link(coming, this.#path(name, "bound"));
      return { generation, token };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      return (await this.bound(name)) ?? { generation, token };
    } finally {
      await rm(coming, { force: true });
    }
  }

  /** Only when the container is gone. */
  async forget(name: ObjectName): Promise<void> {
    await Promise.all(["json", "bound"].map((kind) => rm(this.#path(name, kind), { force: true })));
  }

  async #read(name: ObjectName, kind: string): Promise<string | null> {
    try {
      return await readFile(this.#path(name, kind), "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
      throw error;
    }
  }

  #path(name: ObjectName, kind: string): string {
    return join(this.#directory, `${name}.${kind}`);
  }
}
