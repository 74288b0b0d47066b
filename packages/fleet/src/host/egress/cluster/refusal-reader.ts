/**
 * A gateway's side of `GET /refusals` of an egress proxy. `connect` opens a connection on which the proxy has proved the
 * fleet's key, or will before the first byte.
 */

import { request } from "node:http";
import type { Socket } from "node:net";
import { z } from "zod";
import type { World } from "../../../world/world.ts";
import type { RefusalPage } from "./refusal-ring.ts";

/** The next refusals to ask for. */
export interface RefusalCursor {
  readonly epoch: string | null;
  readonly next: number;
}

export const FROM_THE_OLDEST: RefusalCursor = { epoch: null, next: 0 };

/** A page has at most 256 short entries. */
const PAGE_MAX_BYTES = 1024 * 1024;
const DEADLINE_MS = 10_000;

const count = z.int().nonnegative();
const pageSchema = z.object({
  epoch: z.string().max(64),
  next: count,
  lost: count,
  refusals: z
    .array(
      z.object({
        seq: count,
        at: z.number(),
        sandboxId: z.string().max(64),
        refusal: z.object({
          host: z.string().max(256),
          port: count,
          rule: z.enum(["not-allowed", "address-not-public", "address-not-named", "address-of-this-host"]),
          addresses: z.array(z.string().max(256)).max(8),
          because: z.string().max(512),
        }),
        untold: count,
      }),
    )
    .max(256),
});

/** Rejects when the proxy does not answer in time, or with something else than a page. */
export function fetchRefusals(
  connect: () => Socket,
  { epoch, next }: RefusalCursor,
  world: Pick<World, "timer">,
): Promise<RefusalPage> {
  return new Promise((resolve, reject) => {
    const query = new URLSearchParams({ from: String(next), ...(epoch !== null && { epoch }) });
    const asked = request({ host: "egress", path: `/refusals?${query}`, createConnection: connect });
    const fail = (problem: string): void => {
      asked.destroy();
      reject(new Error(problem));
    };
    const late = world.timer(DEADLINE_MS, () => fail(`no answer within ${DEADLINE_MS} ms`));
    asked.on("error", reject);
    asked.once("close", () => {
      late.cancel();
      reject(new Error("the connection ended"));
    });
    asked.once("response", (response) => {
      const parts: Buffer[] = [];
      let size = 0;
      response.on("error", reject);
      response.on("data", (part: Buffer) => {
        parts.push(part);
        size += part.length;
        if (size > PAGE_MAX_BYTES) fail("the answer is too long");
      });
      response.on("end", () => {
        try {
          resolve(pageSchema.parse(JSON.parse(Buffer.concat(parts).toString("utf8"))));
        } catch {
          fail("the answer is no page of refusals");
        }
      });
    });
    asked.end();
  });
}
