import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { DEERFLOW_KEYS } from "../../../src/compat/deerflow/config-keys.ts";
import { importDeerFlow } from "../../../src/compat/deerflow/import-config.ts";
import { resolveSettings } from "../../../src/config/resolve-settings.ts";
import { runCli } from "../../cli/run-cli.ts";

/** Every key that DeerFlow describes, with a value that is not its default. */
const EVERYTHING = `
sandbox:
  use: deerflow.community.aio_sandbox:AioSandboxProvider
  allow_host_bash: true
  image: $SANDBOX_IMAGE
  port: 8081
  replicas: 7
  overflow_policy: burst
  acquire_timeout: 45
  burst_limit: 2
  container_prefix: Deer_Flow-x
  idle_timeout: 1200
  health_check_skip_seconds: 2.5
  ownership:
    type: redis
    redis_url: redis://example:6379/0
    renewal_interval_seconds: 30
    ttl_multiplier: 5
    key_prefix: deer
  mounts:
    - host_path: /srv/data
      container_path: /data
      read_only: true
    - host_path: relative/tools
      container_path: /tools
    - host_path: /srv/evil
      container_path: /mnt/user-data/workspace
  thread_data_mounts: false
  environment:
    TOKEN: $API_TOKEN
    PRICE: costs $5
  bash_output_max_chars: 1
  read_file_output_max_chars: 1
  ls_output_max_chars: 1
  bash_command_timeout: 60
  provisioner_url: http://provisioner:8002
  provisioner_api_key: secret
  made_up: 1
skills:
  path: ../skills
  container_path: /mnt/elsewhere
uploads:
  max_files: 5
  max_file_count: 5
  max_file_size: 1000
  max_single_file_size: 1000
  max_total_size: 5000
  auto_convert_documents: true
  pdf_converter: pymupdf
tools:
  - name: grep
    max_results: 9
models: [{ name: ignored }]
`;
const ENVIRONMENT = { SANDBOX_IMAGE: "registry/image:1", API_TOKEN: "t" };

describe("importing DeerFlow's configuration", () => {
  const { config, notes } = importDeerFlow(EVERYTHING, "/etc/deerflow", ENVIRONMENT);

  it("maps what has a counterpart", () => {
    expect(config).toEqual({
      backend: "docker",
      docker: { image: "registry/image:1" },
      limits: { max: 7, mode: "soft" },
      acquireTimeoutMs: 45_000,
      fleetId: "deer-flow-x",
      idleTimeoutMs: 1_200_000,
      store: { type: "sqlite" },
      sessionLifetimeMs: 150_000,
      orphanTimeoutMs: 150_000,
      blueprints: {
        default: {
          mounts: [
            { hostPath: "/srv/data", sandboxPath: "/data", readOnly: true },
            { hostPath: "/etc/deerflow/relative/tools", sandboxPath: "/tools", readOnly: false },
          ],
          environment: { TOKEN: "$API_TOKEN", PRICE: "costs $$5" },
        },
      },
      skills: { hostPath: "/etc/skills" },
      gateway: { uploads: { maxFiles: 5, maxFileBytes: 1_000, maxTotalBytes: 5_000, convertDocuments: true } },
    });
  });

  it("heeds what counts with E2B only, with E2B", () => {
    const text = "sandbox: { use: x:E2BSandboxProvider, replicas: 7, overflow_policy: burst, burst_limit: 2 }";
    expect(importDeerFlow(text, "/etc/deerflow", {}).config).toMatchObject({
      limits: { max: 9, mode: "hard", onFull: "reject" },
    });
  });

  it("names every key that it maps to nothing, and every unknown key", () => {
    const named = notes.filter(({ outcome }) => outcome !== "changed").map(({ key }) => key);
    expect(named).toEqual([
      "sandbox.allow_host_bash",
      "sandbox.port",
      "sandbox.overflow_policy",
      "sandbox.burst_limit",
      "sandbox.health_check_skip_seconds",
      "sandbox.mounts[2]",
      "sandbox.thread_data_mounts",
      "sandbox.bash_output_max_chars",
      "sandbox.read_file_output_max_chars",
      "sandbox.ls_output_max_chars",
      "sandbox.bash_command_timeout",
      "sandbox.provisioner_url",
      "sandbox.provisioner_api_key",
      "sandbox.made_up",
      "sandbox.ownership.type",
      "sandbox.ownership.redis_url",
      "sandbox.ownership.key_prefix",
      "skills.container_path",
      "uploads.pdf_converter",
      "tools.grep.max_results",
    ]);
  });

  it("gives a configuration that is accepted", () => {
    const { gateway: _, ...fleet } = config;
    const settings = resolveSettings({ ...fleet, backend: "docker", home: "/var/lib/sandlot" }, ENVIRONMENT);
    expect(settings.limits).toMatchObject({ max: 7, mode: "soft" });
    expect(settings.blueprints.default?.blueprint.environment).toEqual({ TOKEN: "t", PRICE: "costs $5" });
  });

  it("has a rule for every key, and its test has every rule", () => {
    const tried = Object.entries(parse(EVERYTHING) as Record<string, Record<string, unknown>>).flatMap(
      ([section, keys]) =>
        Object.entries(keys).flatMap(([key, value]) =>
          key === "ownership"
            ? Object.keys(value as object).map((below) => `${section}.ownership.${below}`)
            : [`${section}.${key}`],
        ),
    );
    expect(Object.keys(DEERFLOW_KEYS).filter((key) => !tried.includes(key))).toEqual([]);
  });

  it.each([
    ["deerflow.sandbox.local:LocalSandboxProvider", { backend: "local" }],
    ["deerflow.community.e2b_sandbox:E2BSandboxProvider", { limits: { max: 3, mode: "hard" } }],
  ])("chooses what fits %s", (use, expected) => {
    const text = `sandbox:\n  use: ${use}\n${"limits" in expected ? "  replicas: 3\n" : ""}`;
    expect(importDeerFlow(text, "/", {}).config).toEqual(expected);
  });

  it("keeps the default where a value is of no use", () => {
    const imported = importDeerFlow("uploads: { max_files: 0, max_total_size: x }\nsandbox: { image: $NOPE }", "/", {});
    expect(imported.config).toEqual({});
    expect(imported.notes.map(({ key, outcome }) => [key, outcome])).toEqual([
      ["sandbox.image", "unknown"],
      ["uploads.max_files", "unknown"],
      ["uploads.max_total_size", "unknown"],
    ]);
  });

  it("says what is no configuration", () => {
    for (const text of ["- 1", "a: [", "just words"])
      expect(() => importDeerFlow(text, "/", {})).toThrow(expect.objectContaining({ code: "config_invalid" }));
  });

  it("is a command, whose result `config check` accepts", async () => {
    const directory = mkdtempSync(join(tmpdir(), "sli-"));
    try {
      const [from, to] = [join(directory, "config.yaml"), join(directory, "sandlot.yaml")];
      writeFileSync(from, EVERYTHING.replace("AioSandboxProvider", "LocalSandboxProvider"));
      const made = await runCli(["config", "import", "deerflow", from, "-o", to], ENVIRONMENT);
      expect(made).toMatchObject({ code: 0, stdout: "" });
      expect(made.stderr).toContain("sandbox.port has no counterpart");
      expect(readFileSync(to, "utf8")).toMatch(/^# Made from .*\n(# .*\n)+backend: local\n/);
      expect(await runCli(["config", "check", to], { ...ENVIRONMENT, SANDLOT_HOME: directory })).toMatchObject({
        code: 0,
      });
      expect((await runCli(["config", "import", "deerflow", from, "-o", to], ENVIRONMENT)).code).toBe(1);
      const json = await runCli(["config", "import", "deerflow", from, "--json"], ENVIRONMENT);
      expect(JSON.parse(json.stdout)).toMatchObject({ config: { backend: "local" }, problem: null });
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});
