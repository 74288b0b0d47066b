/** The `remote` backend passes the suite of every backend, over a gateway with real local sandboxes. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import type { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import { type BackendDeviation, describeBackend } from "../../../src/testing/backend-suite.ts";
import { hasBubblewrap } from "../../gateway/support/gateway-process.ts";
import { removeDaemon } from "../local/local-harness.ts";
import { describeGroups, deviationsIn } from "../suite-groups.ts";
import { type InnerGateway, openInnerGateway, openRemoteHarness } from "./inner-gateway.ts";

const GROUPS = ["lifecycle", "attaching", "liveness", "exec"];
const blueprint: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };

const noBlanks: BackendDeviation = {
  reason: "nothing can be mounted into a running sandbox of a provisioner",
  instead: (stage: BackendStage) => stage.rejects(stage.make(null), "capability_missing"),
};

const DEVIATIONS: Readonly<Record<string, BackendDeviation>> = {
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
  "exec: a result holds the end of the output, and tells how much is before it and how to get it": {
    reason: "AIO's server does not remember a command that was waited for",
    instead: async (stage) => {
      const sandbox = await stage.sandbox();
      const result = await sandbox.exec("printf 'aöö'", { outputMaxBytes: 3 });
      stage.expect([result.stdout, result.omitted?.stdoutBytes]).toEqual(["ö", 3]);
    },
  },
};

describe.skipIf(!hasBubblewrap)("over a gateway (skipped where bubblewrap is not installed)", () => {
  let inner: InnerGateway;
  beforeAll(async () => {
    inner = await openInnerGateway();
  }, 60_000);
  afterAll(async () => {
    await inner.close();
    await removeDaemon();
  }, 60_000);

  describeBackend({
    name: "remote",
    tools: { describe: describeGroups(GROUPS), it, expect },
    blueprint,
    open: () => openRemoteHarness(inner),
    deviations: deviationsIn(GROUPS, DEVIATIONS),
  });
});
