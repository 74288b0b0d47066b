/**
 * 100 MB into a sandbox's workspace through the API, against a stream of 64 KB chunks into the same directory.
 */

import { createWriteStream } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { interleave } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import { openLocalFleet } from "../../stage/local-fleet.ts";
import type { SuiteOptions } from "../suite.ts";

const BYTES = 100 * 1024 * 1024;
const CHUNK = Buffer.alloc(64 * 1024, "x");
/** At least 0.45 of the host's speed. */
const LIMIT = 1 / 0.45;

export async function* largeWrite({ quick }: SuiteOptions): AsyncGenerator<Result> {
  await using local = await openLocalFleet();
  await using lease = await local.fleet.acquire({ thread: "bench" });
  const beside = join(local.home, "beside");
  await mkdir(beside);
  const plan = { rounds: quick ? 5 : 15, batch: 1, timingsPerRound: 1, warmUp: 1 };
  const [upload, stream] = await interleave(
    [
      {
        name: "upload through the API",
        run: () => lease.sandbox.files.upload("/mnt/user-data/workspace/large", chunks()),
        settle: () => lease.sandbox.files.remove("/mnt/user-data/workspace/large"),
      },
      {
        name: "stream on the host",
        run: () => pipeline(Readable.from(chunks()), createWriteStream(join(beside, "large"))),
        settle: () => rm(join(beside, "large")),
      },
    ],
    plan,
  );
  if (upload === undefined || stream === undefined) throw new Error("A side is missing.");
  const about = "100 MB in 64 KB chunks, same file system; the API's write is atomic (temporary file and rename)";
  yield compare({ name: "write-100-mb", limit: LIMIT, about }, upload, stream);
}

async function* chunks(): AsyncGenerator<Buffer> {
  for (let sent = 0; sent < BYTES; sent += CHUNK.length) yield CHUNK;
}
