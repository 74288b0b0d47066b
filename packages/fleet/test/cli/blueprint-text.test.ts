/** The output of `config check` and `doctor` for a blueprint's limits and network. */

import { expect, it } from "vitest";
import { blueprintText, unlimitedText } from "../../src/cli/blueprint-text.ts";
import { blueprintFinding } from "../../src/cli/doctor/doctor-command.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";

const GIB = 1024 ** 3;

function named(limits: object, network: object = {}) {
  const config = { blueprints: { default: { limits, network } } };
  const found = resolveSettings(config, { HOME: "/home/somebody" }).blueprints.default;
  if (found === undefined) throw new Error("no blueprint");
  return found;
}

it("says what is in force", () => {
  const limits = { memoryBytes: 1.5 * GIB, pidsMax: 10, diskBytes: 3 * GIB, filesMax: 20, cpuCount: 2, cpuWeight: 7 };
  const network = { mode: "allowlist", allow: [{ host: "example.org", ports: [443] }] };
  const { blueprint } = named(limits, network);
  expect(blueprintText(blueprint)).toBe(
    "memory 1.5 GiB, 10 processes, disk 3 GiB, 20 files, 2 processors (weight 7); network allowlist (example.org)",
  );
  expect(unlimitedText(blueprint)).toBeNull();
  expect(blueprintFinding(named({}))).toMatchObject({ status: "ok", detail: expect.stringContaining("network none") });
});

it("warns of what has no limit", () => {
  const found = named({ memoryBytes: "unlimited", filesMax: "unlimited" });
  expect(unlimitedText(found.blueprint)).toBe("memory, files");
  expect(blueprintFinding(found)).toMatchObject({
    name: "blueprint default",
    status: "warn",
    detail: expect.stringMatching(/may take the machine: unlimited memory, .*unlimited files/),
  });
});
