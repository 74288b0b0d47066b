/**
 * The backend suite behind a way to the API server that fails as networks and control planes do: answers come late or are lost
 * after the request took effect, changes are refused with 409, 429, 500 and 503, watches are cut or expire. Everything works as
 * without faults, and nothing is left. `SANDLOT_TEST_SEED` repeats the faults of a run, as far as the order of requests is its
 * own.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { searchDeviations } from "../../backends/local/search-deviations.ts";
import { deviationsIn } from "../../backends/suite-groups.ts";
import { ApiLink, type Chance, HARMS } from "./api-link.ts";
import { clusterTools } from "./cluster-tools.ts";
import { blueprint, CLUSTER, lookUp, openHarness, sharedClaim } from "./kubernetes-harness.ts";
import { writeKubeconfig } from "./linked-kubeconfig.ts";

const GROUPS = ["lifecycle", "attaching", "liveness", "workspaces"];
const seed = Number(process.env.SANDLOT_TEST_SEED ?? Math.floor(Math.random() * 1_000_000));
const folder = mkdtempSync(join(tmpdir(), "sandlot-faults-"));
let link: ApiLink | null = null;
let kubeconfig = "";

beforeAll(async () => {
  const server = await lookUp(async (api) => api.server);
  if (CLUSTER === null || server === null) return;
  console.log(`faults of seed ${seed}`);
  link = await ApiLink.open({ server, directory: dirname(dirname(CLUSTER)) }, chanceOf(seed));
  kubeconfig = writeKubeconfig(CLUSTER, server, link.url, join(folder, "kubeconfig"));
  link.set("harmful");
});

afterAll(() => {
  link?.close();
  rmSync(folder, { recursive: true, force: true });
});

describeBackend({
  name: "kubernetes behind faults",
  tools: clusterTools(GROUPS),
  blueprint,
  open: () => openHarness({ different: { kubeconfig }, workspaces: sharedClaim }),
  deviations: deviationsIn(GROUPS, searchDeviations),
});

it("faults of every kind were met", (context) => {
  if (link === null) return context.skip("no cluster is up: tests/cluster/README.md");
  console.log([...link.harm].map(([harm, count]) => `${harm} ${count}`).join(", "));
  expect(HARMS.filter((harm) => (link?.harm.get(harm) ?? 0) === 0)).toEqual([]);
});

/** mulberry32 */
function chanceOf(from: number): Chance {
  let state = from | 0;
  return {
    unit() {
      state = (state + 0x6d2b79f5) | 0;
      let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
      mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
    },
  };
}
