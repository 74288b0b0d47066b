/** What a configuration may say about registries, and what is refused with the key that is wrong. */

import { isSandlotError } from "@sandlot/contract";
import { expect, it } from "vitest";
import { resolveSettings } from "../../src/config/resolve-settings.ts";

type Network = Record<string, unknown>;

function problemOf(network: Network): string {
  try {
    resolveSettings({ blueprints: { b: { network } } }, { HOME: "/home/tester" });
    return "";
  } catch (error) {
    if (!isSandlotError(error, "config_invalid")) throw error;
    return `${error.details.path}: ${error.details.problem}`;
  }
}

const mirrors = [{ host: "packages.example.org", addresses: ["10.1.2.0/24"] }];

it.each<[Network, string]>([
  [{ mode: "allowlist", registries: ["pip"] }, ""],
  [{ mode: "open", registries: ["go"], mirrors }, ""],
  [{ mode: "none", registries: ["pip"] }, "blueprints.b.network.registries: means nothing with network.mode none"],
  [
    { mode: "allowlist", allow: [{ host: "a.example", ports: [1] }], mirrors },
    "means nothing without network.registries",
  ],
  [{ mode: "allowlist", registries: ["maven"] }, "blueprints.b.network.registries[0]"],
  [
    { mode: "allowlist", registries: ["npm"], mirrors: [{ host: "m.example", addresses: ["127.0.0.1"] }] },
    "mirrors[0].addresses[0]: 127.0.0.1 holds addresses that no sandbox may reach",
  ],
])("%j", (network, problem) => {
  const found = problemOf(network);
  if (problem === "") expect(found).toBe("");
  else expect(found).toContain(problem);
});
