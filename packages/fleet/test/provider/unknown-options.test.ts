/** A newcomer's first mistake: a mistyped option is refused, and the output is short. */

import { inspect } from "node:util";
import { SandlotClient } from "@sandlot/client";
import { expect, test } from "vitest";
import type { AcquireRequest } from "../../src/fleet.ts";
import { newStage } from "../support/stage.ts";

test("acquire({ tread }) is refused instead of giving a sandbox without a thread", async () => {
  const stage = newStage();
  const { fleet } = await stage.open();
  const mistyped = { tread: "x" } as AcquireRequest;
  const refusal = {
    code: "invalid_request",
    details: { field: "tread", problem: "acquire has no such option; perhaps thread was meant" },
  };
  await expect(fleet.acquire(mistyped)).rejects.toMatchObject(refusal);
  await expect(fleet.warm({ thread: "t", blueprnt: "x" } as never)).rejects.toMatchObject({ code: "invalid_request" });
  expect(await fleet.list()).toEqual([]);
  // Nothing listens there: the call is refused before any request.
  const client = new SandlotClient({ url: "http://127.0.0.1:1", retriesMax: 0 });
  await expect(client.acquire(mistyped)).rejects.toMatchObject(refusal);
});

test("a lease and a sandbox print what they are, and no internals", async () => {
  const stage = newStage();
  const { fleet } = await stage.open();
  await using lease = await fleet.acquire({ thread: "t1", purpose: "look" });
  const shown = inspect(lease);
  expect(shown).toMatch(
    /^Lease \{ id: '.*', purpose: "look", user: 'default', thread: 't1', sandbox: '.*', recovery: 'empty' \}$/,
  );
  expect(inspect(lease.sandbox)).toBe(`Sandbox { id: '${lease.sandbox.id}', generation: ${lease.generation} }`);
  expect(inspect(fleet.get(lease.sandbox.id))).toMatch(/^Sandbox \{ id: /);
});
