/** The row clients find no fault with a right server, and find each planted one. */

import { randomUUID } from "node:crypto";
import { type Epoch, SandlotError } from "@sandlot/contract";
import { expect, test } from "vitest";
import { MemoryRowServer } from "../../../packages/fleet/src/store/rows/memory-row-server.ts";
import { MemoryRows } from "../../../packages/fleet/src/store/rows/memory-rows.ts";
import type { Commit, CommitAnswer } from "../../../packages/fleet/src/store/rows/row-server.ts";
import { Random } from "../../simulation/schedule/random.ts";
import { RowClient, SHARED_ROW } from "./row-client.ts";
import { RowFacts } from "./row-facts.ts";

const TIMEOUT_MS = 120;

/** A server that treats some commits wrongly. */
class WrongServer extends MemoryRowServer {
  wrong: (commit: Commit, right: () => Promise<CommitAnswer>) => Promise<CommitAnswer> = (_, right) => right();

  override commit(commit: Commit, signal: AbortSignal): Promise<CommitAnswer> {
    return this.wrong(commit, () => super.commit(commit, signal));
  }

  apply(commit: Commit): Promise<CommitAnswer> {
    return super.commit(commit, new AbortController().signal);
  }
}

async function play(wrong: (server: WrongServer) => WrongServer["wrong"]): Promise<readonly string[]> {
  const violations: string[] = [];
  const facts = new RowFacts((what) => violations.push(what));
  const rows = new MemoryRows(
    () => Date.now(),
    () => randomUUID() as Epoch,
  );
  const clients = await Promise.all(
    [1, 2, 3].map(async (number) => {
      const server = new WrongServer(rows);
      server.wrong = wrong(server);
      const parts = { rows: server, facts, random: new Random(number), timeoutMs: TIMEOUT_MS, newId: randomUUID };
      return RowClient.open({ ...parts, name: `client-${number}` });
    }),
  );
  const direct = new MemoryRowServer(rows);
  const running = clients.map((client) => client.run());
  for (let look = 0; look < 8; look += 1) {
    await new Promise((resolve) => setTimeout(resolve, 120));
    await facts.check(direct);
  }
  for (const client of clients) client.finish();
  await Promise.all(running);
  await new Promise((resolve) => setTimeout(resolve, 3 * TIMEOUT_MS));
  await facts.check(direct);
  expect(facts.acknowledgedCount).toBeGreaterThan(20);
  return violations;
}

function sometimes(share: number): () => boolean {
  const random = new Random(7);
  return () => random.chance(share);
}

test("a right server is found right, also when answers are lost", async () => {
  const isLost = sometimes(0.2);
  const violations = await play(() => async (_, right) => {
    const answer = await right();
    if (isLost())
      throw new SandlotError("store_unavailable", { operation: "commit", problem: "lost", retryAfterMs: 1 });
    return answer;
  });
  expect(violations).toEqual([]);
});

test("a server that forgets what it acknowledged is found", async () => {
  const violations = await play(() => async ({ writes }, right) => {
    const isForgotten = [...writes.keys()].some((key) => key.endsWith("-3"));
    return isForgotten ? { kind: "committed", seq: 1, now: Date.now() } : right();
  });
  expect(violations.join("\n")).toMatch(/has lost .*, which was acknowledged/);
});

test("a commit that takes effect after it was refused is found", async () => {
  const isLate = sometimes(0.05);
  const violations = await play((server) => async (commit, right) => {
    if (!isLate()) return right();
    setTimeout(() => void server.apply({ ...commit, notAfter: Number.MAX_SAFE_INTEGER }), 5 * TIMEOUT_MS);
    await new Promise((resolve) => setTimeout(resolve, TIMEOUT_MS + 10));
    throw new SandlotError("store_unavailable", { operation: "commit", problem: "late", retryAfterMs: 1 });
  });
  expect(violations.join("\n")).toMatch(/took effect after it was refused/);
});

test("a lost update of the shared row is found", async () => {
  const violations = await play((server) => async (commit, right) => {
    if (!commit.reads.has(SHARED_ROW)) return right();
    const reads = new Map([...commit.reads].filter(([key]) => key !== SHARED_ROW));
    const present = await server.read([SHARED_ROW], new AbortController().signal);
    return server.apply({ ...commit, reads: new Map([...reads, [SHARED_ROW, present.rows[0]?.seq ?? 0]]) });
  });
  expect(violations.join("\n")).toMatch(/lost update/);
});
