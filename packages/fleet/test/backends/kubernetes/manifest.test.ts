/** The pod of a sandbox: what keeps it from running too early, and what it must never have. */

import type { BlueprintHash, FleetId, Generation, SandboxId, ThreadKey } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { type KubernetesConfig, kubernetesConfig, kubernetesSchema } from "../../../src/backends/kubernetes/config.ts";
import { differenceOf } from "../../../src/backends/kubernetes/pod/admitted.ts";
import { podManifest } from "../../../src/backends/kubernetes/pod/manifest.ts";
import { parseLabels } from "../../../src/backends/kubernetes/pod/names.ts";
import { podOf } from "../../../src/backends/kubernetes/pod/pod.ts";

const blueprint: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };
const labels = {
  fleet: "fleet" as FleetId,
  sandboxId: "0a1b" as SandboxId,
  generation: 7 as Generation,
  threadKey: "cafe" as ThreadKey,
  blueprintHash: "beef" as BlueprintHash,
};
const config = (given: object = {}): KubernetesConfig => kubernetesConfig(kubernetesSchema.parse(given));
const made = (different: Partial<Blueprint> = {}, given: object = {}, hasOwnUsers = false) =>
  podManifest({
    spec: { labels, blueprint: { ...blueprint, ...different } },
    place: "home",
    config: config(given),
    workspace: null,
    hasOwnUsers,
  });

/** As admission returns it. */
function admitted(change: (spec: Record<string, unknown>) => void = () => {}) {
  const manifest = made();
  const copy = structuredClone(manifest) as unknown as { spec: Record<string, unknown>; metadata: object };
  copy.metadata = { ...copy.metadata, uid: "u", resourceVersion: "1" };
  change(copy.spec);
  return differenceOf(manifest, podOf(copy as never));
}

describe("the pod of a sandbox", () => {
  it("is gated and kept by its finalizer, and never restarts", () => {
    const { metadata, spec } = made();
    expect(metadata).toMatchObject({ name: "sandlot-0a1b", finalizers: ["sandlot.dev/proof"] });
    expect(spec).toMatchObject({
      schedulingGates: [{ name: "sandlot.dev/intent" }],
      restartPolicy: "Never",
      automountServiceAccountToken: false,
      enableServiceLinks: false,
    });
    expect(parseLabels(metadata.labels)).toEqual({ labels, place: "home" });
  });

  it("has accounts of its own where a trial has shown them, which was with the fleet's runtime", () => {
    const hostUsers = (different: Partial<Blueprint>, given: object, hasOwnUsers: boolean) =>
      made(different, given, hasOwnUsers).spec.hostUsers;
    expect(hostUsers({}, {}, false)).toBeUndefined();
    expect(hostUsers({}, {}, true)).toBe(false);
    expect(hostUsers({ runtime: "gvisor" }, {}, true)).toBeUndefined();
    expect(hostUsers({}, { runtimeClass: "kata" }, true)).toBe(false);
    const manifest = made({}, {}, true);
    const copy = structuredClone(manifest) as unknown as { spec: Record<string, unknown>; metadata: object };
    copy.metadata = { ...copy.metadata, uid: "u", resourceVersion: "1" };
    expect(differenceOf(manifest, podOf(copy as never))).toBeNull();
    delete copy.spec.hostUsers;
    expect(differenceOf(manifest, podOf(copy as never))).toContain("accounts");
  });

  it("has requests and limits for memory, processors and disk, of the blueprint or of the configuration", () => {
    const resources = (different: Partial<Blueprint>) =>
      (made(different, { memoryBytes: 1024, requestMemoryBytes: 4096 }).spec.containers[0] as { resources: object })
        .resources;
    expect(resources({})).toMatchObject({ limits: { memory: "1024", cpu: "2000m" }, requests: { memory: "1024" } });
    const limits = { memoryBytes: 8192, cpuCount: 0.5, diskBytes: 1_000 };
    expect(resources({ limits })).toMatchObject({
      limits: { memory: "8192", cpu: "500m", "ephemeral-storage": "1000" },
      requests: { memory: "4096", cpu: "100m", "ephemeral-storage": "1000" },
    });
  });

  it("lets a blueprint's labels replace none of ours", () => {
    const { metadata } = made({ pod: { labels: { "sandlot.dev/fleet": "other", team: "a" } } });
    expect(metadata.labels).toMatchObject({ "sandlot.dev/fleet": "fleet", team: "a" });
  });

  it("mounts the volumes that the configuration defines, and no path of a host", () => {
    const volumes = { skills: { claim: "skills", subPath: "a" }, words: { configMap: "words" } };
    const mounts = [
      { volume: "skills", sandboxPath: "/opt/skills", readOnly: true },
      { volume: "words", sandboxPath: "/opt/words", readOnly: false },
    ];
    const { spec } = made({ mounts }, { volumes });
    expect(spec.volumes).toContainEqual({ name: "extra-0", persistentVolumeClaim: { claimName: "skills" } });
    const { volumeMounts } = spec.containers[0] as { volumeMounts: object[] };
    expect(volumeMounts).toContainEqual({ name: "extra-0", mountPath: "/opt/skills", readOnly: true, subPath: "a" });
    expect(volumeMounts).toContainEqual({ name: "extra-1", mountPath: "/opt/words", readOnly: true });
    const host = [{ hostPath: "/tmp", sandboxPath: "/opt/tmp", readOnly: true }];
    expect(() => made({ mounts: host })).toThrow(expect.objectContaining({ code: "mount_refused" }));
  });
});

describe("what admission made of the pod", () => {
  it("is accepted with defaults that the API server adds", () => {
    const change = (spec: Record<string, unknown>) => {
      spec.schedulerName = "default-scheduler";
      Object.assign((spec.containers as object[])[0] ?? {}, { terminationMessagePath: "/dev/termination-log" });
    };
    expect(admitted(change)).toBeNull();
  });

  it.each([
    ["a container", (spec: Record<string, unknown>) => (spec.containers as object[]).push({ name: "proxy" })],
    ["an init container", (spec: Record<string, unknown>) => (spec.initContainers = [{ name: "setup" }])],
    ["a volume", (spec: Record<string, unknown>) => (spec.volumes as object[]).push({ name: "token" })],
    ["a token", (spec: Record<string, unknown>) => (spec.automountServiceAccountToken = true)],
    [
      "another image",
      (spec: Record<string, unknown>) => Object.assign((spec.containers as object[])[0] ?? {}, { image: "x" }),
    ],
    ["the host's network", (spec: Record<string, unknown>) => (spec.hostNetwork = true)],
  ])("is refused with %s", (_what, change) => {
    expect(admitted((spec) => void change(spec))).toMatch(/^admission/);
  });
});
