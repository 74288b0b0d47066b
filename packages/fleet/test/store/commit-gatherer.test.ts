/** Which commits go to the server together, and what becomes of each. */

import { type Epoch, isSandlotError, SandlotError } from "@sandlot/contract";
import { expect, it } from "vitest";
import { CommitGatherer, type JoinedAnswer, type JoinedCommit } from "../../src/store/rows/commit-gatherer.ts";
import type { Commit } from "../../src/store/rows/row-server.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { sleep } from "../../src/world/waiting.ts";

const NEVER = new AbortController().signal;
const GAVE_UP = new SandlotError("store_unavailable", { operation: "commit", problem: "given up", retryAfterMs: 1 });
const COMMITTED = { kind: "committed", seq: 1, now: 1 } as const;

interface Sent {
  readonly commit: JoinedCommit;
  readonly signal: AbortSignal;
  answer(answer: JoinedAnswer): void;
  fail(error: unknown): void;
}

function stage() {
  const sent: Sent[] = [];
  const gatherer = new CommitGatherer({
    world: systemWorld(),
    gaveUp: () => GAVE_UP,
    send: (commit, signal) =>
      new Promise((answer, fail) => {
        sent.push({ commit, signal, answer, fail });
      }),
  });
  const put = (id: string, more: Partial<Commit> = {}, signal = NEVER) => {
    const writes = new Map([[`record/${id}`, "{}"]]);
    const reads = new Map([[`record/${id}`, 0]]);
    const common = { epoch: "e" as Epoch, seen: [], seenAt: 0, notAfter: 9e15, topics: [], isDurable: false };
    return gatherer.commit({ id, ...common, reads, writes, ...more }, signal);
  };
  const ids = () => sent.map(({ commit }) => commit.ids.join(" "));
  return { sent, put, ids };
}

/** Until everything that does not wait for an answer has happened. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

it("a lone commit is sent with its own signal, and those of one turn go together", async () => {
  const { sent, put, ids } = stage();
  const alone = new AbortController();
  const first = put("a", {}, alone.signal);
  await settle();
  expect(ids()).toEqual(["a"]);
  expect(sent[0]?.signal).toBe(alone.signal);
  const others = [put("b"), put("c"), put("d")];
  await settle();
  expect(ids()).toEqual(["a", "b c d"]);
  sent[1]?.answer(COMMITTED);
  sent[0]?.answer({ kind: "late", now: 1 });
  expect(await Promise.all(others)).toEqual([COMMITTED, COMMITTED, COMMITTED]);
  expect(await first).toEqual({ kind: "late", now: 1 });
});

it("commits that touch the same row, or another epoch, are not joined, and keep their order", async () => {
  const { sent, put, ids } = stage();
  const row = (seq: number) => ({ reads: new Map([["record/x", seq]]), writes: new Map([["record/x", "{}"]]) });
  const look = (seq: number) => ({ reads: new Map([["record/x", seq]]), writes: new Map() });
  for (const [id, more] of Object.entries({
    a: row(1),
    b: row(1),
    c: look(1),
    d: {},
    e: { epoch: "former" as Epoch },
    f: { isDurable: true },
  }))
    void put(id, more);
  await settle();
  expect(ids()).toEqual(["a d", "b"]);
  for (const { answer } of sent) answer(COMMITTED);
  await settle();
  expect(ids().slice(2)).toEqual(["c", "e"]);
  for (const { answer } of sent) answer(COMMITTED);
  await settle();
  expect(ids().slice(4)).toEqual(["f"]);
});

it("readers of one row are joined where they know the same number of it", async () => {
  const { put, ids } = stage();
  const look = (seq: number) => ({ reads: new Map([["session/x", seq]]), writes: new Map() });
  for (const [id, seq] of [["a", 1] as const, ["b", 1] as const, ["c", 2] as const]) void put(id, look(seq));
  await settle();
  expect(ids()).toEqual(["a b", "c"]);
});

it("a joined commit asks for the checks of all", async () => {
  const { sent, put } = stage();
  void put("a", { seen: ["x", "y"], seenAt: 5, notAfter: 100, topics: ["t"] });
  void put("b", { seen: ["y", "z"], seenAt: 7, notAfter: 90, topics: ["t", "u"] });
  await settle();
  expect(sent[0]?.commit).toMatchObject({ seen: ["x", "y", "z"], seenAt: 7, notAfter: 90, topics: ["t", "u"] });
  expect([...(sent[0]?.commit.writes.keys() ?? [])]).toEqual(["record/a", "record/b"]);
});

it("a conflict goes to those that read the row, and the others are sent again at once", async () => {
  const { sent, put, ids } = stage();
  const [a, b, c] = [put("a"), put("b"), put("c")];
  await settle();
  const rows = [{ key: "record/b", seq: 4, body: "new" }];
  sent[0]?.answer({ kind: "conflict", rows, now: 1 });
  expect(await b).toEqual({ kind: "conflict", rows, now: 1 });
  await settle();
  expect(ids()).toEqual(["a b c", "a c"]);
  sent[1]?.answer(COMMITTED);
  expect(await Promise.all([a, c])).toEqual([COMMITTED, COMMITTED]);
});

it("what holds for one of them only sends all of them alone", async () => {
  for (const answer of [{ kind: "split" }, { kind: "rewound", now: 1 }, { kind: "late", now: 1 }] as const) {
    const { sent, put, ids } = stage();
    const all = [put("a"), put("b"), put("c")];
    await settle();
    sent[0]?.answer(answer);
    await settle();
    expect(ids()).toEqual(["a b c", "a", "b"]);
    sent[1]?.answer(COMMITTED);
    sent[2]?.answer({ kind: "rewound", now: 2 });
    await settle();
    sent[3]?.answer(COMMITTED);
    expect(await Promise.all(all)).toEqual([COMMITTED, { kind: "rewound", now: 2 }, COMMITTED]);
  }
});

it("a caller that gives up in line is never sent, and one under way takes no other along", async () => {
  const { sent, put, ids } = stage();
  const [first, second, third] = [new AbortController(), new AbortController(), new AbortController()];
  const [a, b] = [put("a", {}, first.signal), put("b", {}, second.signal)];
  await settle();
  void put("x");
  await settle();
  const waiting = put("c", {}, third.signal);
  third.abort();
  await expect(waiting).rejects.toBe(GAVE_UP);
  first.abort();
  await expect(a).rejects.toBe(GAVE_UP);
  expect(sent[0]?.signal.aborted).toBe(false);
  second.abort();
  await expect(b).rejects.toBe(GAVE_UP);
  expect(sent[0]?.signal.aborted).toBe(true);
  sent[0]?.fail(GAVE_UP);
  sent[1]?.answer(COMMITTED);
  await settle();
  expect(ids()).toEqual(["a b", "x"]);
  await expect(put("d", {}, AbortSignal.abort())).rejects.toBe(GAVE_UP);
});

it("a failure of the round trip is the failure of all in it", async () => {
  const { sent, put } = stage();
  const all = [put("a"), put("b")];
  await settle();
  const error = new SandlotError("store_unavailable", { operation: "commit", problem: "cut", retryAfterMs: 1 });
  sent[0]?.fail(error);
  for (const one of all) {
    const reason = await one.catch((thrown: unknown) => thrown);
    expect(isSandlotError(reason, "store_unavailable")).toBe(true);
  }
});

it("round trips that hang hold up the others for a moment only", async () => {
  const { put, ids } = stage();
  for (const id of ["a", "b"]) {
    void put(id);
    await settle();
  }
  void put("c");
  void put("d");
  await settle();
  expect(ids()).toEqual(["a", "b"]);
  const world = systemWorld();
  for (let tries = 0; tries < 1_000 && ids().length < 3; tries += 1) await sleep(world, 10);
  expect(ids()).toEqual(["a", "b", "c d"]);
});

it("a crowd is cut into round trips of bounded size", async () => {
  const { sent, put } = stage();
  for (let n = 0; n < 200; n += 1) void put(`n${n}`);
  await settle();
  for (let turn = 0; turn < 20; turn += 1) {
    for (const { answer } of sent) answer(COMMITTED);
    await settle();
  }
  expect(sent.reduce((sum, { commit }) => sum + commit.ids.length, 0)).toBe(200);
  for (const { commit } of sent) {
    expect(commit.ids.length).toBeLessThanOrEqual(32);
    expect(commit.reads.size).toBeLessThanOrEqual(64);
  }
});
