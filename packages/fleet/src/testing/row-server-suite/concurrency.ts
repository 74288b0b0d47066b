/** Commits at the same time, from two clients: as if one came after the other. */

import type { CommitAnswer, RowServer } from "../../store/rows/row-server.ts";
import type { RowServerCase, RowStage } from "./stage.ts";

const ROUNDS = 25;

export const concurrencyCases: readonly RowServerCase[] = [
  {
    name: "no update is lost",
    async run(stage) {
      const { expect } = stage;
      const both = await clients(stage);
      const add = async (server: RowServer): Promise<number> => {
        let row = await stage.row("count/all", server);
        for (;;) {
          const body = String(Number(row.body ?? 0) + 1);
          const commit = await stage.commitOf({ "count/all": body }, { reads: new Map([["count/all", row.seq]]) });
          const answer = await stage.commit(commit, server);
          if (answer.kind === "committed") return answer.seq;
          row = stage.conflictOf(answer)["count/all"] ?? row;
        }
      };
      const seqs = await Promise.all(Array.from({ length: 30 }, (_, n) => add(both(n))));
      expect(new Set(seqs).size).toBe(30);
      expect(await stage.bodies(["count/all"])).toEqual(["30"]);
    },
  },
  {
    name: "of several commits that read the same row, one wins and the others see it",
    async run(stage) {
      const { expect } = stage;
      const both = await clients(stage);
      for (let round = 0; round < ROUNDS; round += 1) {
        const key = `thread/${round}`;
        const commits = await Promise.all(Array.from({ length: 4 }, (_, n) => stage.commitOf({ [key]: `by ${n}` })));
        const answers = await Promise.all(commits.map((commit, n) => stage.commit(commit, both(n))));
        expect(kinds(answers)).toEqual({ committed: 1, conflict: 3 });
        const { body } = await stage.row(key);
        expect(body).toBe(`by ${answers.findIndex(({ kind }) => kind === "committed")}`);
        for (const answer of answers)
          if (answer.kind === "conflict") expect(answer.rows[0]).toMatchObject({ key, body });
      }
    },
  },
  {
    name: "two commits that each read the row the other writes do not both succeed",
    async run(stage) {
      const { expect } = stage;
      const both = await clients(stage);
      for (let round = 0; round < ROUNDS; round += 1) {
        const [one, other] = [`session/${round}`, `record/${round}`];
        // In every second round the rows exist already.
        if (round % 2 === 0) await stage.write({ [one]: "0", [other]: "0" });
        const reads = new Map((await stage.rows([one, other])).map(({ key, seq }) => [key, seq]));
        const commits = [
          await stage.commitOf({ [one]: "1" }, { reads }),
          await stage.commitOf({ [other]: "1" }, { reads }),
        ];
        const answers = await Promise.all(commits.map((commit, n) => stage.commit(commit, both(n))));
        expect(answers.filter(({ kind }) => kind === "committed").length).toBeLessThanOrEqual(1);
        const bodies = await stage.bodies([one, other]);
        const applied = bodies.filter((body) => body === "1").length;
        expect(applied).toBe(answers.filter(({ kind }) => kind === "committed").length);
      }
    },
  },
  {
    name: "a commit is seen whole or not at all",
    async run(stage) {
      const { expect } = stage;
      const both = await clients(stage);
      const keys = ["count/a", "count/b", "count/c", "count/d"];
      await stage.write(Object.fromEntries(keys.map((key) => [key, "100"])));
      let done = false;
      const move = async (n: number): Promise<void> => {
        for (let round = 0; round < ROUNDS; round += 1) {
          const [from, to] = [keys[(n + round) % 4] ?? "", keys[(n + 2 * round + 1) % 4] ?? ""];
          if (from === to) continue;
          const rows = await stage.rows([from, to], both(n));
          const [less = 0, more = 0] = rows.map(({ body }) => Number(body));
          const reads = new Map(rows.map(({ key, seq }) => [key, seq]));
          await stage.commit(await stage.commitOf({ [from]: `${less - 1}`, [to]: `${more + 1}` }, { reads }), both(n));
        }
      };
      let checked = 0;
      const watch = async (): Promise<void> => {
        while (!done || checked === 0) {
          const rows = await stage.rows(keys);
          const reads = new Map(rows.map(({ key, seq }) => [key, seq]));
          const answer = await stage.commit(await stage.commitOf({}, { reads }));
          if (answer.kind !== "committed") continue;
          expect(rows.reduce((sum, { body }) => sum + Number(body), 0)).toBe(400);
          checked += 1;
        }
      };
      const watching = watch();
      await Promise.all([0, 1, 2, 3].map(move)).finally(() => {
        done = true;
      });
      await watching;
      expect(checked).toBeGreaterThan(0);
    },
  },
  {
    name: "commits of different rows do not disturb one another",
    async run(stage) {
      const both = await clients(stage);
      const answers = await Promise.all(
        Array.from({ length: 40 }, async (_, n) =>
          stage.commit(await stage.commitOf({ [`record/${n}`]: "x" }), both(n)),
        ),
      );
      stage.expect(kinds(answers)).toEqual({ committed: 40 });
    },
  },
  {
    name: "commits that only read the same row do not disturb one another",
    async run(stage) {
      const both = await clients(stage);
      const reads = new Map([["session/a", await stage.write({ "session/a": "alive" })]]);
      const answers = await Promise.all(
        Array.from({ length: 40 }, async (_, n) =>
          stage.commit(await stage.commitOf({ [`record/${n}`]: "x" }, { reads }), both(n)),
        ),
      );
      stage.expect(kinds(answers)).toEqual({ committed: 40 });
    },
  },
  {
    name: "commits over the same rows in opposite orders all get an answer",
    async run(stage) {
      const { expect } = stage;
      const both = await clients(stage);
      const keys = Array.from({ length: 12 }, (_, n) => `record/${n}`);
      for (let round = 0; round < 8; round += 1) {
        const rows = await stage.rows(keys);
        const reads = rows.map(({ key, seq }) => [key, seq] as const);
        const writes = keys.map((key) => [key, `${round}`] as const);
        const answers = await Promise.all(
          Array.from({ length: 8 }, async (_, n) => {
            const turn = <T>(items: readonly T[]) => (n % 2 === 0 ? items : items.toReversed());
            const commit = await stage.commitOf({}, { reads: new Map(turn(reads)), writes: new Map(turn(writes)) });
            return stage.commit(commit, both(n));
          }),
        );
        expect(kinds(answers)).toEqual({ committed: 1, conflict: 7 });
      }
    },
  },
];

async function clients(stage: RowStage): Promise<(n: number) => RowServer> {
  const second = await stage.harness.second();
  return (n) => (n % 2 === 0 ? stage.server : second);
}

function kinds(answers: readonly CommitAnswer[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { kind } of answers) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}
