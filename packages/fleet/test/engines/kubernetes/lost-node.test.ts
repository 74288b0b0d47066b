/**
 * A node that never answers: its sandboxes stay until there is proof, the backend says why, and an administrator's word, or the
 * removal of the Node, ends them. The node is a Node object without a machine.
 */

import type { EngineRef, SandboxId } from "@sandlot/contract";
import { expect } from "vitest";
import { letGo } from "../../../src/backends/kubernetes/let-go.ts";
import { formatRef, podName } from "../../../src/backends/kubernetes/pod/names.ts";
import { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { sleep } from "../../../src/world/waiting.ts";
import { ghostNode } from "./cluster-pods.ts";
import { onCluster } from "./cluster-tools.ts";
import { blueprint, openHarness } from "./kubernetes-harness.ts";

type Harness = Awaited<ReturnType<typeof openHarness>>;

const world = systemWorld();
const NEVER = new AbortController().signal;
const SCHEDULED_MS = 60_000;

interface Lost {
  readonly harness: Harness;
  readonly stage: BackendStage;
  readonly node: string;
  readonly sandboxId: SandboxId;
  readonly ref: EngineRef;
  removeNode(): Promise<void>;
}

/** A sandbox on a node without a machine, deleted by its maker that gave up. */
function onLostNode(name: string, nodeLoss: "trust" | "confirm", run: (lost: Lost) => Promise<void>): void {
  onCluster(name, null, async () => {
    const node = `ghost-${world.randomHex(3)}`;
    const removeNode = await ghostNode(node);
    const harness = await openHarness({ different: { nodeLoss } });
    try {
      const pod = {
        nodeSelector: { "kubernetes.io/hostname": node },
        tolerations: [{ operator: "Exists" as const }],
      };
      const stage = new BackendStage(harness, { ...blueprint, pod }, expect);
      const spec = stage.spec(stage.newKey());
      const giveUp = new AbortController();
      const making = harness.backend.create(spec, giveUp.signal).catch((error: unknown) => error);
      const { sandboxId } = spec.labels;
      const uid = await scheduledOn(harness, sandboxId, node);
      giveUp.abort(new Error("the caller left"));
      await making;
      const ref = formatRef({ namespace: harness.api.namespace, name: podName(sandboxId), uid });
      await deleting(harness, sandboxId);
      await run({ harness, stage, node, sandboxId, ref, removeNode });
    } finally {
      await removeNode();
      await harness.dispose();
    }
  });
}

async function scheduledOn({ api }: Harness, sandboxId: SandboxId, node: string): Promise<string> {
  const until = world.monotonicMs() + SCHEDULED_MS;
  for (;;) {
    const found = await api.get("pods", podName(sandboxId), NEVER);
    if ((found as unknown as { spec?: { nodeName?: string } } | null)?.spec?.nodeName === node)
      return found?.metadata.uid ?? "";
    if (world.monotonicMs() > until) throw new Error("the pod was not scheduled");
    await sleep(world, 100);
  }
}

async function deleting({ api }: Harness, sandboxId: SandboxId): Promise<void> {
  const until = world.monotonicMs() + SCHEDULED_MS;
  while (typeof (await api.get("pods", podName(sandboxId), NEVER))?.metadata.deletionTimestamp !== "string") {
    if (world.monotonicMs() > until) throw new Error("the pod is not being deleted");
    await sleep(world, 100);
  }
}

onLostNode("what cannot be proved stays, and an administrator's word ends it", "confirm", async (lost) => {
  const { harness, ref, node, sandboxId } = lost;
  expect(await harness.backend.probe(ref, NEVER)).toBe("unknown");
  expect(await harness.backend.explain?.(ref, NEVER)).toMatch(
    new RegExp(`${node} has not confirmed .* confirm-dead`, "s"),
  );
  // Somebody deletes it by force: the finalizer keeps it.
  const found = await harness.api.get("pods", podName(sandboxId), NEVER);
  const uid = found?.metadata.uid ?? "";
  await harness.api.remove("pods", podName(sandboxId), { uid, gracePeriodSeconds: 0 }, NEVER);
  expect(await harness.backend.probe(ref, NEVER)).toBe("unknown");
  // `nodeLoss: confirm`: not even a removed Node is enough.
  await lost.removeNode();
  expect(await harness.backend.probe(ref, NEVER)).toBe("unknown");
  await harness.backend.confirmDead?.(ref, "a test", NEVER);
  expect(await harness.backend.probe(ref, NEVER)).toBe("dead");
  expect(await harness.api.get("pods", podName(sandboxId), NEVER)).toBeNull();
});

onLostNode("a removed Node ends it where the operator trusts that", "trust", async ({ harness, ref, removeNode }) => {
  expect(await harness.backend.probe(ref, NEVER)).toBe("unknown");
  await removeNode();
  await harness.backend.destroy(ref, NEVER);
  expect(await harness.backend.probe(ref, NEVER)).toBe("dead");
});

onLostNode("let-go tells what it cannot end, and ends it with the operator's word", "confirm", async (lost) => {
  const { harness, stage, sandboxId, node } = lost;
  const alive = await new BackendStage(harness, blueprint, expect).make();
  const settings = harness.settings();
  const first = await letGo(settings, world, false, NEVER);
  expect(first.ended).toBe(1);
  expect(first.left).toEqual([{ name: `pod ${podName(sandboxId)}`, because: expect.stringContaining(node) }]);
  expect(await harness.backend.probe(alive.target.ref, NEVER)).toBe("dead");
  expect(await harness.api.get("secrets", `sandlot-key-${stage.fleetId}`, NEVER)).not.toBeNull();
  expect(await letGo(settings, world, true, NEVER)).toEqual({ ended: 1, left: [] });
  expect(await harness.api.get("secrets", `sandlot-key-${stage.fleetId}`, NEVER)).toBeNull();
  expect((await harness.api.list("pods", {}, NEVER)).items).toEqual([]);
});
