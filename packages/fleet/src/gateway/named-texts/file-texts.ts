/**
 * Named texts as files of a home: one file each, so that processes that create and remove at the same time need no
 * lock. Files are 0600 in a directory that is 0700. They are written beside their place and then linked into it.
 */

import { link, mkdir, readdir, readFile, rename, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf, isMissing } from "../../world/disk-trouble.ts";
import type { World } from "../../world/world.ts";
import type { NamedTexts } from "./named-texts.ts";

const SUFFIX = ".json";

export class FileTexts implements NamedTexts {
  readonly #directory: string;
  readonly #pattern: RegExp;
  readonly #world: Pick<World, "randomHex">;

  private constructor(directory: string, pattern: RegExp, world: Pick<World, "randomHex">) {
    this.#directory = directory;
    this.#pattern = pattern;
    this.#world = world;
  }

  /** Makes the directory. Other files in it are ignored: `pattern` says which names are texts. */
  static async open(directory: string, pattern: RegExp, world: Pick<World, "randomHex">): Promise<FileTexts> {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    return new FileTexts(directory, pattern, world);
  }

  async read(name: string): Promise<string | null> {
    try {
      return await readFile(this.placeOf(name), "utf8");
    } catch (error) {
      if (isMissing(error)) return null;
      throw error;
    }
  }

  async create(name: string, text: string): Promise<boolean> {
    const staged = this.#aside(name);
    await writeFile(staged, `${text}\n`, { mode: 0o600, flag: "wx" });
    try {
      return await this.#place(staged, name);
    } finally {
      await unlink(staged);
    }
  }

  async remove(name: string): Promise<boolean> {
    try {
      await unlink(this.placeOf(name));
      return true;
    } catch (error) {
      if (isMissing(error)) return false;
      throw error;
    }
  }

  /** A file that another process has made since is taken along with the rename, and put back. */
  async removeIf(name: string, isMeant: (text: string) => boolean): Promise<boolean> {
    const present = await this.read(name);
    if (present === null || !isMeant(present)) return false;
    const taken = this.#aside(name);
    try {
      await rename(this.placeOf(name), taken);
    } catch (error) {
      if (isMissing(error)) return false;
      throw error;
    }
    const isTheSame = isMeant(await readFile(taken, "utf8"));
    if (!isTheSame) await this.#place(taken, name);
    await unlink(taken);
    return isTheSame;
  }

  async names(): Promise<readonly string[]> {
    const files = await readdir(this.#directory);
    const names = files.filter((file) => file.endsWith(SUFFIX)).map((file) => file.slice(0, -SUFFIX.length));
    return names.filter((name) => this.#pattern.test(name));
  }

  async all(): Promise<ReadonlyMap<string, string>> {
    const names = await this.names();
    const texts = await Promise.all(names.map(async (name) => [name, await this.read(name)] as const));
    // One that was removed meanwhile is missing.
    return new Map(texts.flatMap(([name, text]) => (text === null ? [] : [[name, text]])));
  }

  placeOf(name: string): string {
    return join(this.#directory, `${name}${SUFFIX}`);
  }

  /** A name beside the texts that none of them has. */
  #aside(name: string): string {
    return join(this.#directory, `.${name}-${this.#world.randomHex(4)}.part`);
  }

  /** False when there is a text of this name already. */
  async #place(path: string, name: string): Promise<boolean> {
    try {
      await link(path, this.placeOf(name));
      return true;
    } catch (error) {
      if (errnoOf(error) === "EEXIST") return false;
      throw error;
    }
  }
}
