/** Uploads that are under way at one of two gateways. */

import { expect, it } from "vitest";
import type { Caller } from "./stage.ts";
import type { TwoGateways } from "./two-gateways.ts";

const UPLOADS = "/mnt/user-data/uploads";
/** More than a stream keeps back, so that the gateway has begun to write. */
export const PIECE = "x".repeat(200_000);
const LIMIT_MS = 30_000;
const BOUNDARY = "-the-boundary-";

type Open = () => Promise<Pick<TwoGateways, "a" | "b"> & { readonly atA: Caller; readonly atB: Caller }>;

export function uploadTests(open: Open): void {
  it("one under way here: the other gateway lists, runs and uploads meanwhile, and has it whole at its end", async () => {
    const { atA, atB } = await open();
    const slow = await SlowUpload.begin(atA, "t1", "file.txt");
    await slow.write(PIECE);
    await untilStaged(atB);
    expect(await names(atB)).toEqual([]);
    await sendWhole(atB, "other.txt", "other");
    await sendWhole(atB, "file.txt", "earlier");
    expect(await names(atB)).toEqual(["file.txt", "other.txt"]);
    expect(await read(atA, "file.txt")).toBe("earlier");
    await slow.write("end");
    expect(await slow.end()).toMatchObject({ success: true });
    for (const at of [atA, atB]) expect(await read(at, "file.txt")).toBe(`${PIECE}end`);
    expect(await read(atA, "other.txt")).toBe("other");
  });
}

/** A request with one file, whose content the test writes bit by bit. */
export class SlowUpload {
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #response: Promise<Response>;

  private constructor(writer: WritableStreamDefaultWriter<Uint8Array>, response: Promise<Response>) {
    this.#writer = writer;
    this.#response = response;
    response.catch(() => undefined);
  }

  static async begin(caller: Caller, thread: string, name: string): Promise<SlowUpload> {
    const { readable, writable } = new TransformStream<Uint8Array>();
    const response = caller.call("POST", `/v1/threads/${thread}/uploads`, {
      body: readable,
      headers: { "content-type": `multipart/form-data; boundary=${BOUNDARY}` },
    });
    const upload = new SlowUpload(writable.getWriter(), response);
    await upload.write(
      `--${BOUNDARY}\r\nContent-Disposition: form-data; name="files"; filename="${name}"\r\n` +
        "Content-Type: text/plain\r\n\r\n",
    );
    return upload;
  }

  write(text: string): Promise<void> {
    return this.#writer.write(Buffer.from(text));
  }

  async end(): Promise<unknown> {
    await this.write(`\r\n--${BOUNDARY}--\r\n`);
    await this.#writer.close();
    return (await this.#response).json();
  }

  /** `null` where the whole upload was answered. */
  async failure(): Promise<unknown> {
    try {
      const response = await this.#response;
      await response.text();
      return response.status === 200 ? null : response.status;
    } catch (error) {
      return error;
    }
  }
}

export async function sendWhole(caller: Caller, name: string, content: string): Promise<void> {
  const body = new FormData();
  body.append("files", new Blob([content]), name);
  expect(await caller.ask(200, "POST", "/v1/threads/t1/uploads", { body })).toMatchObject({ success: true });
}

/** As a client sees them. */
export async function names(caller: Caller): Promise<readonly string[]> {
  const { files } = await caller.ask<{ files: { filename: string }[] }>(200, "GET", "/v1/threads/t1/uploads");
  return files.map(({ filename }) => filename);
}

export async function read(caller: Caller, name: string): Promise<string> {
  const path = encodeURIComponent(`${UPLOADS}/${name}`);
  const response = await caller.call("GET", `/v1/threads/t1/files/content?path=${path}`);
  expect(response.status).toBe(200);
  return response.text();
}

/** The thread has its sandbox: the upload has reached it. */
async function untilStaged(caller: Caller): Promise<void> {
  const until = Date.now() + LIMIT_MS;
  for (;;) {
    const { sandboxes } = await caller.ask<{ sandboxes: { thread: string; state: string }[] }>(
      200,
      "GET",
      "/v1/sandboxes",
    );
    if (sandboxes.some(({ thread, state }) => thread === "t1" && state === "leased")) return;
    if (Date.now() > until) throw new Error("the upload did not reach its sandbox");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
