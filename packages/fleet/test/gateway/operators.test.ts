/** The operators' actions on sandboxes without an owner, and on leases that no caller renews. */

import { expect, test } from "vitest";
import { openStage } from "./support/stage.ts";

interface Listed {
  readonly sandboxes: readonly { readonly sandboxId: string; readonly state: string; readonly holders: string[] }[];
}

test("a blank is ended by its id, and the pool makes another", async () => {
  const stage = await openStage({ fleet: { pool: { default: 1 } } });
  try {
    const blanks = async () => {
      const { sandboxes } = await stage.operator.ask<Listed>(200, "GET", "/v1/sandboxes");
      return sandboxes.filter(({ state }) => state === "blank").map(({ sandboxId }) => sandboxId);
    };
    await expect.poll(blanks).toHaveLength(1);
    const [first = ""] = await blanks();
    const ended = await stage.operator.ask(200, "DELETE", `/v1/sandboxes/${first}`);
    expect(ended).toEqual({ outcome: "stopped" });
    await stage.operator.ask(404, "DELETE", `/v1/sandboxes/${first}`);
    await expect.poll(blanks).toEqual([expect.not.stringMatching(first)]);
  } finally {
    await stage.done();
  }
});

test("a short lease that is not renewed holds nothing soon after, and cannot be renewed", async () => {
  // A round of housekeeping comes long after the lease is due.
  const stage = await openStage({ fleet: { housekeepingIntervalMs: 30_000, sessionLifetimeMs: 90_000 } });
  try {
    const alice = await stage.user("alice");
    const { leaseId } = await alice.ask(201, "POST", "/v1/threads/t/leases", { json: { ttlMs: 1_000 } });
    const holders = async () => {
      const { sandboxes } = await stage.operator.ask<Listed>(200, "GET", "/v1/sandboxes");
      return sandboxes.flatMap((sandbox) => sandbox.holders);
    };
    expect(await holders()).toContain(leaseId);
    await expect.poll(holders).toEqual([]);
    await alice.ask(404, "PUT", `/v1/leases/${leaseId}`);
    await alice.ask(204, "DELETE", `/v1/leases/${leaseId}`);
  } finally {
    await stage.done();
  }
});
