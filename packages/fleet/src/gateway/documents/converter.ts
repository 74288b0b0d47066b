/**
 * Converts documents to Markdown in a separate process: a document is untrusted, and the libraries that read it are
 * large. The process has a heap limit, a time limit and a limit on unpacked archives; its failure does not affect the
 * gateway.
 *
 * Bytes go in through stdin, Markdown comes out through stdout, nothing touches the disk.
 */

import { spawn } from "node:child_process";
import { SandlotError } from "@sandlot/contract";
import type { GatewaySettings } from "../../config/gateway-settings.ts";
import { missingPeer } from "../../optional-peer.ts";
import { programFile } from "../../package-files.ts";
import type { World } from "../../world/world.ts";

const CONVERTIBLE: ReadonlySet<string> = new Set([".pdf", ".docx", ".pptx", ".xlsx", ".odt", ".odp", ".ods"]);
/** Known document formats that no library here can read. */
const TOO_OLD: ReadonlySet<string> = new Set([".doc", ".ppt", ".xls"]);
const MARKDOWN_MAX_BYTES = 16 * 1024 * 1024;
const COMPLAINT_MAX_CHARS = 2_000;

export class Converter {
  readonly #settings: GatewaySettings["uploads"];
  readonly #world: World;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor({ uploads }: GatewaySettings, world: World) {
    this.#settings = uploads;
    this.#world = world;
  }

  isDocument(extension: string): boolean {
    return CONVERTIBLE.has(extension) || TOO_OLD.has(extension);
  }

  /** Rejects with `unsupported_media` for a document beyond the limits, `dependency_missing` without a reader. */
  async convert(extension: string, content: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<Uint8Array> {
    if (!CONVERTIBLE.has(extension)) throw refused(extension, "this format cannot be read; save it in a newer one");
    await this.#turn();
    try {
      return await this.#run(extension, content, signal);
    } finally {
      this.#running -= 1;
      this.#waiting.shift()?.();
    }
  }

  async #turn(): Promise<void> {
    if (this.#running >= this.#settings.conversionMaxCount) await new Promise<void>((next) => this.#waiting.push(next));
    this.#running += 1;
  }

  async #run(extension: string, content: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<Uint8Array> {
    const { conversionTimeoutMs, conversionMemoryBytes, conversionMaxUncompressedBytes } = this.#settings;
    const heap = Math.ceil(conversionMemoryBytes / 1024 / 1024);
    const child = spawn(
      process.execPath,
      [
        `--max-old-space-size=${heap}`,
        programFile("gateway/documents/convert-document"),
        extension,
        String(conversionMaxUncompressedBytes),
      ],
      { stdio: ["pipe", "pipe", "pipe"], env: {}, signal, killSignal: "SIGKILL" },
    );
    let late = false;
    const timer = this.#world.timer(conversionTimeoutMs, () => {
      late = true;
      child.kill("SIGKILL");
    });
    const output: Buffer[] = [];
    let size = 0;
    let complaint = "";
    child.stdout.on("data", (piece: Buffer) => {
      size += piece.byteLength;
      if (size > MARKDOWN_MAX_BYTES) child.kill("SIGKILL");
      else output.push(piece);
    });
    child.stderr.on("data", (piece: Buffer) => {
      complaint = (complaint + piece.toString("utf8")).slice(-COMPLAINT_MAX_CHARS);
    });
    const ended = new Promise<number | null>((resolve, reject) => {
      child.once("error", reject);
      child.once("close", resolve);
    });
    ended.catch(() => undefined);
    try {
      await feed(child.stdin, content);
      const code = await ended;
      if (code === 0) return Buffer.concat(output);
      if (code === 3) throw missingPeer(["officeparser", "read-excel-file"], "Converting documents", complaint.trim());
      if (late) throw refused(extension, `reading it took more than ${conversionTimeoutMs} ms`);
      if (size > MARKDOWN_MAX_BYTES) throw refused(extension, `its text has more than ${MARKDOWN_MAX_BYTES} bytes`);
      throw refused(extension, code === 2 ? complaint.trim() : "reading it needs too much memory or fails");
    } finally {
      timer.cancel();
      child.kill("SIGKILL");
    }
  }
}

/** The exit of a child that stops reading says why. */
async function feed(stdin: NodeJS.WritableStream, content: AsyncIterable<Uint8Array>): Promise<void> {
  let broken = false;
  stdin.on("error", () => {
    broken = true;
  });
  for await (const piece of content) {
    if (broken) return;
    if (!stdin.write(piece)) {
      await new Promise<void>((resolve) => {
        stdin.once("drain", resolve);
        stdin.once("close", resolve);
        stdin.once("error", () => resolve());
      });
    }
  }
  stdin.end();
}

function refused(extension: string, problem: string): SandlotError {
  return new SandlotError("unsupported_media", { mediaType: `A ${extension} document`, problem });
}
