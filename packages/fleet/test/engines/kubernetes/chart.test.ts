/**
 * The chart: what it renders is what the backend expects, and what cannot work is refused with a reason. Installing it on a
 * cluster is another test.
 */

import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { parseAllDocuments } from "yaml";
import { networkPolicies } from "../../../src/backends/kubernetes/network/policies.ts";
import { resolveSettings } from "../../../src/config/resolve-settings.ts";

const CHART = fileURLToPath(new URL("../../../../../deploy/helm/sandlot", import.meta.url));
const HELM = findHelm();
const directory = mkdtempSync(join(tmpdir(), "sandlot-chart-"));

interface Rendered {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly annotations?: Readonly<Record<string, string>> };
  readonly spec?: unknown;
  readonly data?: Readonly<Record<string, string>>;
  readonly rules?: readonly { resources: string[]; verbs: string[] }[];
}

afterAll(() => rmSync(directory, { recursive: true, force: true }));
beforeEach((context) => {
  if (HELM === null) context.skip("helm is not built: tests/cluster/build.sh addons");
});

describe("the chart", () => {
  it("passes helm's own check", () => {
    const { status, stdout } = spawnSync(HELM ?? "", ["lint", "--strict", CHART], { encoding: "utf8" });
    expect([status, stdout]).toEqual([0, expect.stringContaining("0 chart(s) failed")]);
  });

  it("renders without values a configuration that Sandlot takes", () => {
    const config = configOf(render({}));
    expect(resolveSettings(config, {})).toMatchObject({
      backend: "kubernetes",
      fleetId: "main",
      kubernetes: { connect: "pod-ip", workspaces: { mode: "none" }, networkPolicy: "enforce" },
    });
  });

  it("gives gateways and egress proxies the same blueprints", () => {
    const allow = [{ host: "example.com", ports: [443] }];
    const rendered = render({ config: { blueprints: { default: { network: { mode: "allowlist", allow } } } } });
    const config = configOf(rendered);
    const hash = (host: string) =>
      resolveSettings({ ...config, kubernetes: { ...config.kubernetes, egress: { host } } }, {}).blueprints.default
        ?.hash;
    expect(hash("@EGRESS_HOST@")).toBe(hash("10.0.0.9"));
  });

  it("has the policies of the backend, word for word", () => {
    const clusterRanges = ["10.96.0.0/12", "203.0.113.0/24", "2001:db8::/48"];
    const policies = render({ networkPolicy: { clusterRanges } }).filter(({ kind }) => kind === "NetworkPolicy");
    const wanted = networkPolicies({ egressPort: 3_129, clusterRanges, gatewaysAreInside: true }) as Rendered[];
    expect(policies.map(({ metadata, spec }) => [metadata.name, spec])).toEqual(
      wanted.map(({ metadata, spec }) => [metadata.name, spec]),
    );
  });

  it("asks for no more rights than the backend needs", () => {
    const roles = render({}).filter(({ kind }) => kind.endsWith("Role"));
    const resources = roles.flatMap(({ rules = [] }) => rules.flatMap((rule) => rule.resources));
    expect(new Set(resources)).toEqual(
      new Set(["pods", "pods/log", "secrets", "events", "configmaps", "resourcequotas"]),
    );
    expect(roles.map(({ kind }) => kind)).not.toContain("ClusterRole");
    const more = render({ rbac: { nodes: true, portForward: true } }).filter(({ kind }) => kind === "ClusterRole");
    expect(more.map(({ rules }) => rules)).toEqual([[expect.objectContaining({ resources: ["nodes"] })]]);
  });

  it("lets every pod pass Pod Security `restricted`", () => {
    const pods = render({ workspaces: { mode: "claim" } }).flatMap(podsOf);
    expect(pods.length).toBeGreaterThanOrEqual(4);
    for (const { securityContext, containers, volumes } of pods) {
      expect(securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 10_001 });
      for (const container of containers)
        expect(container.securityContext).toMatchObject({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ["ALL"] },
        });
      expect(JSON.stringify(volumes ?? [])).not.toContain("hostPath");
    }
  });

  it("keeps the threads' files when it is removed, and ends sandboxes only after the gateways", () => {
    const rendered = render({ workspaces: { mode: "claim" } });
    const claim = rendered.find(({ metadata }) => metadata.name === "sandlot-workspaces");
    expect(claim?.metadata.annotations).toMatchObject({ "helm.sh/resource-policy": "keep" });
    const job = rendered.find(({ kind }) => kind === "Job");
    expect(job?.metadata.annotations).toMatchObject({ "helm.sh/hook": "post-delete" });
  });

  it.each([
    ["several replicas on SQLite", { gateway: { replicas: 2 } }, "SQLite serves one"],
    ["a shared store without an address", { store: { type: "postgres" } }, "/store/url"],
    ["a password in the address", { store: { type: "redis", url: "redis://a:b@host/0" } }, "/store/url"],
    ["policies without a canary", { egress: { enabled: false } }, "networkPolicy.mode to external"],
    ["a misspelt key", { gatway: {} }, "gatway"],
  ])("refuses %s", (_, values, problem) => {
    expect(() => render(values)).toThrow(problem);
  });
});

function render(values: object): Rendered[] {
  const file = join(directory, "values.json");
  writeFileSync(file, JSON.stringify(values));
  const args = ["template", "sandlot", CHART, "--namespace", "sandlot", "--kube-version", "1.33.0", "--values", file];
  const text = execFileSync(HELM ?? "", args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  return parseAllDocuments(text).flatMap((document) => (document.toJS() as Rendered | null) ?? []);
}

function configOf(rendered: readonly Rendered[]): { kubernetes: object } {
  const map = rendered.find(({ kind, metadata }) => kind === "ConfigMap" && metadata.name === "sandlot");
  const [document] = parseAllDocuments(map?.data?.["sandlot.yaml"] ?? "");
  if (document === undefined) throw new Error("the chart renders no configuration");
  const { gateway: _, ...config } = document.toJS() as { gateway: object; kubernetes: object };
  return config;
}

interface PodSpec {
  readonly securityContext: object;
  readonly containers: readonly { readonly securityContext: object }[];
  readonly volumes?: readonly object[];
}

function podsOf({ kind, spec }: Rendered): PodSpec[] {
  if (kind === "Pod") return [spec as PodSpec];
  const { template } = (spec ?? {}) as { template?: { spec: PodSpec } };
  return template === undefined ? [] : [template.spec];
}

function findHelm(): string | null {
  const built = join(process.env.KUBE_BIN ?? join(homedir(), ".cache/kube-dev/bin"), "helm");
  if (existsSync(built)) return built;
  const { status, stdout } = spawnSync("sh", ["-c", "command -v helm"], { encoding: "utf8" });
  return status === 0 ? stdout.trim() : null;
}
