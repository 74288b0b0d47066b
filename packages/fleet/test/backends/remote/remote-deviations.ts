/** What of the backend suite holds over a gateway, whatever engine the gateway has. */

import type { BackendDeviation, BackendStage } from "../../../src/testing/backend-suite.ts";
import { AIO_DEVIATIONS } from "../aio-deviations.ts";

/**
 * The groups that hold over a gateway. Workspaces are tested in `chain.test.ts`: the suite's cases need slots. The API of
 * AIO does not name the signal that ended a command, and searches in its own way.
 */
export const REMOTE_GROUPS = ["lifecycle", "attaching", "liveness", "activity", "exec", "files", "file streams"];
const noBlanks: BackendDeviation = {
  reason: "nothing can be mounted into a running sandbox of a provisioner",
  instead: (stage: BackendStage) => stage.rejects(stage.make(null), "capability_missing"),
};

export const REMOTE_DEVIATIONS: Readonly<Record<string, BackendDeviation>> = {
  "lifecycle: what is made is listed at once, with its labels and its place": {
    reason: "there are no blanks",
    instead: async (stage) => {
      const { spec, created } = await stage.make();
      const { ref, place } = created;
      const expected = [{ ref, labels: spec.labels, liveness: "alive", place }];
      stage.expect(await stage.backend.list({ consistent: true }, stage.signal)).toEqual(expected);
    },
  },
  "lifecycle: every object has a reference of its own, also two of one thread": {
    reason: "a gateway gives a thread one sandbox at a time, so a second writer cannot begin",
    instead: async (stage) => {
      const key = stage.newKey();
      const first = await stage.make(key);
      await stage.rejects(stage.make(key), "create_failed");
      stage.expect(await stage.refs()).toEqual([first.created.ref]);
      await stage.destroy(first);
      await stage.make(key);
    },
  },
  "attaching: rebind gives a blank its new generation and token, and the old ones are stale": noBlanks,
  "attaching: rebind told twice, or by two at once, answers as it did the first time": noBlanks,
  "attaching: rebind from credentials that are not the present ones is stale and changes nothing": noBlanks,
  "attaching: rebind of what is dead or gone is lost": noBlanks,
  "attaching: a sandbox object of an older generation reaches nothing any more": noBlanks,
  ...Object.fromEntries(
    Object.entries(AIO_DEVIATIONS).filter(([name]) => REMOTE_GROUPS.some((group) => name.startsWith(`${group}: `))),
  ),
};
