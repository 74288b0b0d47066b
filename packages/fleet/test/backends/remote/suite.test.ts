/** The `remote` backend passes the suite of every backend, over a gateway with real local sandboxes. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { hasBubblewrap } from "../../gateway/support/gateway-process.ts";
import { removeDaemon } from "../local/local-harness.ts";
import { type InnerGateway, openInnerGateway, openRemoteHarness } from "./inner-gateway.ts";
import { REMOTE_DEVIATIONS, REMOTE_GROUPS } from "./remote-deviations.ts";

const blueprint: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };

const isWanted = (name: string) => name.startsWith("backend ") || REMOTE_GROUPS.includes(name);
const describeSome = (name: string, body: () => void) => void (isWanted(name) && describe(name, body));

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
    tools: { describe: describeSome, it, expect },
    blueprint,
    open: () => openRemoteHarness(inner),
    deviations: REMOTE_DEVIATIONS,
  });
});
