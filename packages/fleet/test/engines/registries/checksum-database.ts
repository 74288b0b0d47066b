/**
 * A checksum database of Go with one record: a transparency log whose tree has one leaf, signed with a key of its own.
 * Go's own client verifies all of it.
 */

import { createHash, generateKeyPairSync, type KeyObject, sign } from "node:crypto";

const ED25519 = Buffer.from([1]);

export class ChecksumDatabase {
  /** As GOSUMDB has it: name, key, and where it is. */
  readonly name: string;
  readonly #host: string;
  readonly #privateKey: KeyObject;
  readonly #keyHash: Buffer;
  #module = "";
  #record = "";

  constructor(host: string, url: string) {
    const { privateKey, publicKey } = generateKeyPairSync("ed25519");
    const key = Buffer.concat([ED25519, publicKey.export({ format: "der", type: "spki" }).subarray(-32)]);
    this.#host = host;
    this.#privateKey = privateKey;
    this.#keyHash = sha256(Buffer.concat([Buffer.from(`${host}\n`), key])).subarray(0, 4);
    this.name = `${host}+${this.#keyHash.toString("hex")}+${key.toString("base64")} ${url}`;
  }

  /** The only record. The sums are those of the module's archive and of its go.mod. */
  add(module: string, version: string, archive: string, goMod: string): void {
    this.#module = `${module}@${version}`;
    this.#record = `${module} ${version} ${archive}\n${module} ${version}/go.mod ${goMod}\n`;
  }

  /** `null`: it has no such page. */
  answer(path: string): Buffer | null {
    if (path === "/latest") return Buffer.from(this.#tree());
    if (path === `/lookup/${this.#module}`) return Buffer.from(`0\n${this.#record}\n${this.#tree()}`);
    if (path === "/tile/8/0/000.p/1") return this.#root();
    if (path === "/tile/8/data/000.p/1") return Buffer.from(this.#record);
    return null;
  }

  #root(): Buffer {
    return sha256(Buffer.concat([Buffer.from([0]), Buffer.from(this.#record)]));
  }

  #tree(): string {
    const text = `go.sum database tree\n1\n${this.#root().toString("base64")}\n`;
    const signature = Buffer.concat([this.#keyHash, sign(null, Buffer.from(text), this.#privateKey)]);
    return `${text}\n\u2014 ${this.#host} ${signature.toString("base64")}\n`;
  }
}

/** Go's `h1:` sum over files by their names. */
export function sumOfModule(files: Readonly<Record<string, string>>): string {
  const lines = Object.keys(files)
    .sort()
    .map(
      (name) =>
        `${createHash("sha256")
          .update(files[name] ?? "")
          .digest("hex")}  ${name}\n`,
    );
  return `h1:${sha256(Buffer.from(lines.join(""))).toString("base64")}`;
}

function sha256(bytes: Buffer): Buffer {
  return createHash("sha256").update(bytes).digest();
}
