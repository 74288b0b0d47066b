/** 100 MB into and out of a workspace through HTTP, against the same through the library. */

import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import { openLocalFleet } from "../../stage/local-fleet.ts";
import { serveGateway } from "../../stage/served-gateway.ts";
import type { SuiteOptions } from "../suite.ts";

const BYTES = 100 * 1024 * 1024;
const CHUNK = Buffer.alloc(64 * 1024, "x");
const PATH = "/mnt/user-data/workspace/large";
/** At least 60 % of the library's speed. */
const LIMIT = 1 / 0.6;

interface Files {
  upload(path: string, content: AsyncIterable<Uint8Array>): Promise<unknown>;
  download(path: string): AsyncIterable<Uint8Array>;
}

export async function* transfer({ quick }: SuiteOptions): AsyncGenerator<Result> {
  await using local = await openLocalFleet();
  await using served = await serveGateway();
  await using inside = await local.fleet.acquire({ thread: "bench" });
  await using outside = await served.client.acquire({ thread: "bench" });
  const plan = { rounds: quick ? 4 : 12, batch: 1, timingsPerRound: 1, warmUp: 1 };
  const about = "100 MB in 64 KB chunks, one at a time; the gateway is a process of its own";
  const both = [
    ["through HTTP", outside.sandbox.files],
    ["through the library", inside.sandbox.files],
  ] as const;
  const [put, write] = await interleave(
    both.map(([name, files]) => uploading(name, files)),
    plan,
  );
  if (put === undefined || write === undefined) throw new Error("A side is missing.");
  yield compare({ name: "upload-100-mb-through-http", limit: LIMIT, about }, put, write);
  const [get, read] = await interleave(
    both.map(([name, files]) => downloading(name, files)),
    plan,
  );
  if (get === undefined || read === undefined) throw new Error("A side is missing.");
  yield compare({ name: "download-100-mb-through-http", limit: LIMIT, about }, get, read);
}

function uploading(name: string, files: Files): Subject {
  return { name: `upload ${name}`, run: async () => void (await files.upload(PATH, chunks())) };
}

function downloading(name: string, files: Files): Subject {
  return {
    name: `download ${name}`,
    run: async () => {
      let size = 0;
      for await (const piece of files.download(PATH)) size += piece.byteLength;
      if (size !== BYTES) throw new Error(`${size} bytes came instead of ${BYTES}`);
    },
  };
}

async function* chunks(): AsyncGenerator<Buffer> {
  for (let sent = 0; sent < BYTES; sent += CHUNK.length) yield CHUNK;
}
