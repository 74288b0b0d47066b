/**
 * The backend suite through a gateway inside the cluster: a pod of the chart with its own service account, SQLite on a claim,
 * policies that are enforced, and pods reached by their addresses. The chain of a test: the suite, the remote backend, the gateway,
 * the pod of a sandbox.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { openRemoteHarness } from "../../backends/remote/inner-gateway.ts";
import { REMOTE_DEVIATIONS } from "../../backends/remote/remote-deviations.ts";
import { deviationsIn } from "../../backends/suite-groups.ts";
import { clusterTools } from "./cluster-tools.ts";
import { type InstalledChart, installChart } from "./installed-chart.ts";
import { blueprint, CLUSTER, HAS_GATEWAY_IMAGE } from "./kubernetes-harness.ts";

/** Those that a gateway inside can change. Killing a pod's processes takes its node. */
const GROUPS = ["lifecycle", "attaching", "activity", "exec", "files", "file streams"];
/** Cases of these groups that kill a sandbox; suite.test.ts runs them. */
const KILLS = [
  "lifecycle: a sandbox that died can be destroyed",
  "attaching: an attachment closes when its sandbox dies or is destroyed",
  "attaching: what is dead or gone is lost",
];
const MIB = 1024 * 1024;
const INSTALLED_MS = 300_000;

let chart: InstalledChart | null = null;
let key = "";

beforeAll(async () => {
  if (CLUSTER === null || !HAS_GATEWAY_IMAGE) return;
  chart = await installChart(
    {
      images: { gateway: "sandlot/gateway:1", sandbox: "localhost/sandlot-test:1", pullPolicy: "Never" },
      egress: { replicas: 1 },
      kubernetes: { memoryBytes: 512 * MIB, requestMemoryBytes: 32 * MIB, requestCpuCount: 0.01, tmpBytes: 64 * MIB },
      config: {
        limits: { max: 200 },
        gateway: {
          rate: { perKeyPerSecond: 1e6, perUserPerSecond: 1e6, burst: 1e6, perAddressFailuresPerMinute: 1e6 },
        },
      },
    },
    "sqlite",
  );
  key = await chart.makeKey("platform");
}, INSTALLED_MS);

afterAll(async () => {
  if (chart === null) return;
  const installed = chart;
  try {
    const left = (await installed.client.listSandboxes()).filter(({ state }) => state === "leased");
    expect(left.map(({ thread }) => thread)).toEqual([]);
    await installed.uninstall();
    const pods = await installed.kubectl("get", "pods", "-o", "name");
    expect(pods.trim()).toBe("");
  } finally {
    await installed.dispose();
  }
}, INSTALLED_MS);

describe("through a gateway inside", () => {
  it("a new installation has everything that its sandboxes need", async (context) => {
    if (chart === null) return context.skip("no cluster is up, or it has no image of the gateway");
    const found = await chart
      .kubectl("exec", "deployment/sandlot", "--", "sandlot", "doctor", "--json")
      .catch((error: { stdout?: string }) => error.stdout ?? String(error));
    const { findings } = JSON.parse(found) as { findings: { name: string; status: string; detail: string }[] };
    expect(findings.filter(({ status }) => status === "fail")).toEqual([]);
    expect(findings.find(({ name }) => name === "network isolation")?.status).toBe("ok");
    expect(findings.find(({ name }) => name === "permissions")?.status).toBe("ok");
  });

  describeBackend({
    name: "kubernetes through a gateway inside",
    tools: clusterTools(GROUPS, HAS_GATEWAY_IMAGE ? null : "the cluster has no image of the gateway: npm run images"),
    blueprint,
    async open() {
      if (chart === null) throw new Error("the chart is not installed");
      const { url } = chart;
      const gateway = {
        // Cases share the gateway; what they leave is looked for at the end.
        ...{ gateway: { url }, key, fleet: { list: async () => [] } },
        kill: () => Promise.reject(new Error("processes of a pod are out of reach")),
      };
      return openRemoteHarness(gateway, { plainHttp: true });
    },
    deviations: deviationsIn(GROUPS, {
      ...REMOTE_DEVIATIONS,
      ...Object.fromEntries(KILLS.map((name) => [name, "what kills a pod's processes is its node, and no gateway"])),
    }),
  });
});
