/** Many commits of one client at once: a server may join them, and each is answered as if it had come alone. */

import type { Epoch } from "@sandlot/contract";
import type { Commit, CommitAnswer } from "../../store/rows/row-server.ts";
import type { RowServerCase, RowStage } from "./stage.ts";

const CROWD = 40;

export const joiningCases: readonly RowServerCase[] = [
  {
    name: "commits of other rows at once are all applied",
    async run(stage) {
      const mirror = stage.newMirror(await stage.harness.second());
      await mirror.follow();
      const answers = await atOnce(stage, await crowd(stage));
      for (const answer of answers) stage.seqOf(answer);
      stage.expect(await stage.bodies(keys())).toEqual(keys().map((_, n) => `body ${n}`));
      await mirror.follow();
      stage.expect(keys().map((key) => mirror.rows.get(key))).toEqual(keys().map((_, n) => `body ${n}`));
    },
  },
  {
    name: "a conflict of one among many is its own, and shows its rows only",
    async run(stage) {
      const { expect } = stage;
      const commits = await crowd(stage);
      const overtaken = [3, 17, 31];
      for (const n of overtaken) await stage.write({ [`record/${n}`]: "first" });
      const answers = await atOnce(stage, commits);
      for (const [n, answer] of answers.entries()) {
        if (!overtaken.includes(n)) stage.seqOf(answer);
        else expect(Object.keys(stage.conflictOf(answer))).toEqual([`record/${n}`]);
      }
      const bodies = await stage.bodies(keys());
      expect(bodies).toEqual(keys().map((_, n) => (overtaken.includes(n) ? "first" : `body ${n}`)));
    },
  },
  {
    name: "what one among many is refused for, the others are not",
    async run(stage) {
      const { expect } = stage;
      const before = await stage.commitOf({ "record/8": "before" });
      const seq = stage.seqOf(await stage.commit(before));
      await stage.write({ "record/8": "after" });
      const commits = [...(await crowd(stage))];
      const [late, lost, retried, former] = [5, 13, 8, 29];
      commits[late] = { ...at(commits, late), notAfter: (await stage.now()) - 1_000 };
      commits[lost] = { ...at(commits, lost), seen: [stage.newId()] };
      commits[retried] = before;
      commits[former] = { ...at(commits, former), epoch: "another" as Epoch };
      const answers = await atOnce(stage, commits);
      expect(answers[late]?.kind).toBe("late");
      expect(answers[lost]?.kind).toBe("rewound");
      expect(answers[retried]).toMatchObject({ kind: "committed", seq });
      expect(answers[former]?.kind).toBe("new-epoch");
      const others = answers.filter((_, n) => ![late, lost, retried, former].includes(n));
      expect(new Set(others.map(({ kind }) => kind))).toEqual(new Set(["committed"]));
      expect(await stage.bodies(["record/5", "record/13", "record/8", "record/29", "record/30"])).toEqual([
        ...[null, null, "after", null, "body 30"],
      ]);
    },
  },
  {
    name: "a check among commits is as of one moment, and each commit is remembered",
    async run(stage) {
      const { expect } = stage;
      const seq = await stage.write({ "session/one": "1" });
      const reads = new Map([["session/one", seq]]);
      const commits = await crowd(stage, { reads });
      const check = await stage.commitOf({}, { reads });
      for (const answer of await atOnce(stage, [...commits, check])) stage.seqOf(answer);
      // Each vouches: the server knows the id of every one.
      const seen = commits.map(({ id }) => id);
      stage.seqOf(await stage.commit(await stage.commitOf({ "record/last": "1" }, { seen })));
      for (const answer of await atOnce(stage, commits)) stage.seqOf(answer);
      expect(await stage.bodies(["record/0"])).toEqual(["body 0"]);
    },
  },
  {
    name: "a caller that gives up takes none of the others along",
    async run(stage) {
      const commits = await crowd(stage);
      const answers = await Promise.allSettled(
        commits.map((commit, n) => {
          const giveUp = new AbortController();
          const call = stage.server.commit(commit, n % 4 === 0 ? giveUp.signal : stage.patience());
          queueMicrotask(() => giveUp.abort(new DOMException("given up", "AbortError")));
          return call;
        }),
      );
      for (const [n, answer] of answers.entries()) {
        if (n % 4 === 0) continue;
        stage.expect(answer.status).toBe("fulfilled");
        if (answer.status === "fulfilled") stage.seqOf(answer.value);
      }
    },
  },
];

function keys(): readonly string[] {
  return Array.from({ length: CROWD }, (_, n) => `record/${n}`);
}

function crowd(stage: RowStage, more: Partial<Commit> = {}): Promise<readonly Commit[]> {
  return Promise.all(keys().map((key, n) => stage.commitOf({ [key]: `body ${n}` }, more)));
}

function atOnce(stage: RowStage, commits: readonly Commit[]): Promise<readonly CommitAnswer[]> {
  return Promise.all(commits.map((commit) => stage.commit(commit)));
}

function at(commits: readonly Commit[], n: number): Commit {
  const commit = commits[n];
  if (commit === undefined) throw new Error(`there is no commit ${n}`);
  return commit;
}
