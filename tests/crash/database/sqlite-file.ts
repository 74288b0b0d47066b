/** A SQLite file in a directory of its own. */

import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Database } from "./database.ts";

const FILE_NAME = "fleet.db";
/** The file, its two companions, and the epoch beside it. */
const EXPECTED = /^fleet\.db(-wal|-shm|\.epoch)?$/;

export class SqliteFile implements Database {
  readonly address: { readonly type: "sqlite"; readonly path: string };
  readonly server = null;
  readonly stepMs = null;
  readonly losesCommits = false;
  readonly #directory: string;

  constructor(directory: string) {
    mkdirSync(directory);
    this.#directory = directory;
    this.address = { type: "sqlite", path: join(directory, FILE_NAME) };
  }

  async problems(): Promise<readonly string[]> {
    const left = readdirSync(this.#directory)
      .filter((name) => !EXPECTED.test(name))
      .map((name) => `${name} is left beside the store`);
    return [...left, ...this.#damage()];
  }

  endNow(): void {}
  async end(): Promise<void> {}

  #damage(): readonly string[] {
    const db = new DatabaseSync(this.address.path, { readOnly: true });
    try {
      const answers = db.prepare("PRAGMA integrity_check").all();
      const damage = answers.map((row) => String(row.integrity_check)).filter((answer) => answer !== "ok");
      return damage.map((what) => `the database is damaged: ${what}`);
    } finally {
      db.close();
    }
  }
}
