/** Downloads, through `/v1/file/download`. It has no ranges, so the bytes before one are read and dropped. */

import type { IncomingMessage } from "node:http";
import { isSandlotError, SANDBOX_LIMITS, SandlotError } from "@sandlot/contract";
import { readOn } from "../../../untrusted/download.ts";
import { STREAM_LIMITS } from "../../../untrusted/limits.ts";
import { within } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import type { AioCalls } from "../calls.ts";
import { checkCount, checkPath } from "../checks.ts";
import { httpError } from "../wire/answers.ts";
import { collect, NoAnswer } from "../wire/wire.ts";
import { LOOK_AT_FILE } from "./script-texts.ts";
import type { Scripts } from "./scripts.ts";

export type Range = { readonly offset?: number; readonly length?: number };

const DOWNLOAD = "/v1/file/download";

export class Downloads {
  readonly #calls: AioCalls;
  readonly #scripts: Scripts;

  constructor(calls: AioCalls, scripts: Scripts) {
    this.#calls = calls;
    this.#scripts = scripts;
  }

  async read(path: string, range: Range): Promise<Uint8Array> {
    const parts: Uint8Array[] = [];
    let size = 0;
    for await (const part of this.stream(path, range)) {
      parts.push(part);
      size += part.length;
      if (size <= SANDBOX_LIMITS.readMaxBytes) continue;
      const sizeBytes = Number(await this.#scripts.run(LOOK_AT_FILE, { P: path }, path));
      throw new SandlotError("file_too_large", { path, sizeBytes, maxBytes: SANDBOX_LIMITS.readMaxBytes });
    }
    return Buffer.concat(parts, size);
  }

  async *stream(given: string, { offset = 0, length }: Range): AsyncGenerator<Uint8Array> {
    const path = checkPath(given);
    checkCount(offset, "offset", 0);
    checkCount(length, "length", 0);
    const response = await this.#calls.open(DOWNLOAD, { path });
    try {
      if (response.statusCode !== 200) throw await this.#problem(path, response);
      yield* cut(response, this.#calls.world.timer, offset, length ?? Number.POSITIVE_INFINITY);
    } catch (error) {
      throw await this.#calls.explain(error);
    } finally {
      response.destroy();
    }
  }

  /** A status says little; the kind of the file says more. */
  async #problem(path: string, response: IncomingMessage): Promise<Error> {
    const collected = () => collect(response, STREAM_LIMITS.refusalMaxBytes);
    const late = () => new NoAnswer("the refusal did not end in time");
    const body = await within(this.#calls.world, STREAM_LIMITS.unitMs, undefined, late, collected);
    await this.#scripts.run(LOOK_AT_FILE, { P: path }, path);
    return httpError({ status: response.statusCode ?? 0, body }, DOWNLOAD);
  }
}

async function* cut(
  response: IncomingMessage,
  timer: World["timer"],
  offset: number,
  length: number,
): AsyncGenerator<Uint8Array> {
  let at = 0;
  if (length === 0) return;
  try {
    for await (const chunk of readOn(response, timer)) {
      const wanted = chunk.subarray(Math.max(0, offset - at), Math.max(0, offset + length - at));
      at += chunk.length;
      if (wanted.length > 0) yield wanted;
      if (at >= offset + length) return;
    }
  } catch (error) {
    throw isSandlotError(error) ? error : new NoAnswer((error as Error).message, { cause: error });
  }
  if (!response.complete) throw new NoAnswer("the answer was cut off");
}
