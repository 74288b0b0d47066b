/** Connections that break, calls that are given up, and the end. */

import { isSandlotError } from "@sandlot/contract";
import type { RowServer } from "../../store/rows/row-server.ts";
import type { RowServerCase, RowStage } from "./stage.ts";

export const troubleCases: readonly RowServerCase[] = [
  {
    name: "a call that was given up before it began ends at once and changes nothing",
    async run(stage) {
      const { expect } = stage;
      const commit = await stage.commitOf({ "record/a": "A" });
      const gone = AbortSignal.abort(new Error("given up"));
      for (const call of callsOf(stage.server, stage)) expect(await isRejected(call(gone))).toBe(true);
      expect(await isRejected(stage.server.commit(commit, gone))).toBe(true);
      expect(await stage.bodies(["record/a"])).toEqual([null]);
    },
  },
  {
    name: "without a connection every call is store_unavailable, and nothing waits for the next one",
    async run(stage) {
      const { expect } = stage;
      const second = await stage.harness.second();
      const commits = await Promise.all(Array.from({ length: 5 }, (_, n) => stage.commitOf({ [`record/${n}`]: "x" })));
      const restore = await stage.harness.interrupt();
      try {
        for (const call of [...callsOf(stage.server, stage), ...commits.map((c) => commitCall(stage.server, c))]) {
          // Longer than a client waits for a lost connection, shorter than the test.
          const error = await call(stage.patience(15_000)).then(
            () => null,
            (reason: unknown) => reason,
          );
          expect(isSandlotError(error, "store_unavailable")).toBe(true);
        }
      } finally {
        await restore();
      }
      await stage.until("the client works again", () =>
        stage.row("record/probe").then(
          () => true,
          () => false,
        ),
      );
      await stage.sleep(200);
      expect(
        (
          await stage.rows(
            commits.map((_, n) => `record/${n}`),
            second,
          )
        ).map(({ body }) => body),
      ).toEqual(commits.map(() => null));
      await stage.write({ "record/after": "x" });
    },
  },
  {
    name: "a call that hangs ends soon after its signal",
    async run(stage) {
      const restore = await stage.harness.interrupt();
      try {
        for (const call of callsOf(stage.server, stage)) {
          await stage.failureOf(() => call(stage.patience(300)));
        }
      } finally {
        await restore();
      }
    },
  },
  {
    name: "a commit whose answer was lost is told by its id",
    async run(stage) {
      const { expect } = stage;
      for (let round = 0; round < 5; round += 1) {
        const commit = await stage.commitOf({ [`record/${round}`]: "x" });
        const sent = stage.commit(commit).catch(() => null);
        await stage.harness.cut();
        const first = await sent;
        let answer = first;
        await stage.until("the client works again", async () => {
          answer = await stage.commit(commit).catch(() => null);
          return answer !== null;
        });
        if (answer === null) throw new Error("no answer");
        const seq = stage.seqOf(answer);
        if (first !== null) expect(stage.seqOf(first)).toBe(seq);
        expect(await stage.row(`record/${round}`)).toEqual({ key: `record/${round}`, seq, body: "x" });
      }
    },
  },
  {
    name: "a closed client answers nothing, and closing again is fine",
    async run(stage) {
      const { expect } = stage;
      const second = await stage.harness.second();
      const heard: string[] = [];
      second.subscribe((topic) => heard.push(topic));
      await second.close();
      await second.close();
      for (const call of callsOf(second, stage)) {
        const error = await call(stage.patience()).then(
          () => null,
          (reason: unknown) => reason,
        );
        expect(isSandlotError(error, "store_unavailable")).toBe(true);
      }
      heard.length = 0;
      await stage.commit(await stage.commitOf({ "record/a": "A" }, { topics: ["room"] }));
      await stage.sleep(100);
      expect(heard).toEqual([]);
    },
  },
];

type Call = (signal: AbortSignal) => Promise<unknown>;

/** Every call besides `commit`. */
function callsOf(server: RowServer, stage: RowStage): readonly Call[] {
  return [
    (signal) => server.read(["record/a"], signal),
    (signal) => server.scan(null, 10, signal),
    (signal) => server.beginEpoch(stage.newEpoch(), stage.newEpoch(), signal),
  ];
}

function commitCall(server: RowServer, commit: Parameters<RowServer["commit"]>[0]): Call {
  return (signal) => server.commit(commit, signal);
}

async function isRejected(call: Promise<unknown>): Promise<boolean> {
  return call.then(
    () => false,
    () => true,
  );
}
