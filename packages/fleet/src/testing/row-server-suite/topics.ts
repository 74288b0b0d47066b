/** Topics: hints for waiting callers. They may come too often, and "*" when some may have been missed. */

import type { RowServerCase } from "./stage.ts";

export const topicCases: readonly RowServerCase[] = [
  {
    name: "a commit tells its topics to every client that listens",
    async run(stage) {
      const second = await stage.harness.second();
      const heard: string[][] = [[], []];
      const stops = [stage.server, second].map((server, n) => server.subscribe((topic) => heard[n]?.push(topic)));
      // A subscription may take a moment; then "*" may stand for what was missed.
      await stage.until("both clients hear of a commit", async () => {
        const commit = await stage.commitOf({ [`record/${stage.newId()}`]: "A" }, { topics: ["thread:abc", "room"] });
        stage.seqOf(await stage.commit(commit));
        await stage.sleep(20);
        return heard.every((topics) => topics.includes("room") && topics.includes("thread:abc"));
      });
      for (const stop of stops) stop();
    },
  },
  {
    name: "an ended subscription hears nothing more",
    async run(stage) {
      const heard: string[] = [];
      const others: string[] = [];
      const stop = stage.server.subscribe((topic) => heard.push(topic));
      stage.server.subscribe((topic) => others.push(topic));
      stop();
      stop();
      const before = heard.length;
      await stage.until("the other subscription hears of a commit", async () => {
        const commit = await stage.commitOf({ [`record/${stage.newId()}`]: "A" }, { topics: ["room"] });
        await stage.commit(commit);
        await stage.sleep(20);
        return others.includes("room");
      });
      stage.expect(heard.length).toBe(before);
    },
  },
  {
    name: 'a subscription that was cut hears "*" and goes on',
    async run(stage) {
      const heard: string[] = [];
      stage.server.subscribe((topic) => heard.push(topic));
      await stage.until("the subscription works", async () => {
        await stage.commit(await stage.commitOf({ [`record/${stage.newId()}`]: "A" }, { topics: ["room"] }));
        await stage.sleep(20);
        return heard.includes("room");
      });
      heard.length = 0;
      await stage.harness.cut();
      const second = await stage.harness.second();
      await stage.until("it hears that topics may have been missed", () => heard.includes("*"));
      heard.length = 0;
      await stage.until("it hears of later commits", async () => {
        const commit = await stage.commitOf({ [`record/${stage.newId()}`]: "A" }, { topics: ["room"] });
        await stage.commit(commit, second);
        await stage.sleep(20);
        return heard.includes("room");
      });
    },
  },
];
