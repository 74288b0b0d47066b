/** The guide for users of DeerFlow names every key that can be imported, and only existing things. */

import { readFileSync } from "node:fs";
import { ERRORS } from "@sandlot/contract";
import { expect, test } from "vitest";
import { DEERFLOW_KEYS } from "../../src/compat/deerflow/config-keys.ts";
import { fleetConfigJsonSchema } from "../../src/config/schema.ts";
import { openStage } from "./support/stage.ts";

const guide = readFileSync(new URL("../../../../docs/guides/coming-from-deerflow.md", import.meta.url), "utf8");

test("it names every key that can be imported", () => {
  // Earlier names of the same thing, which only old files have.
  const old = ["uploads.max_file_count", "uploads.max_single_file_size", "skills.container_path"];
  const missing = Object.keys(DEERFLOW_KEYS).filter((key) => {
    const name = key.split(".").at(-1) ?? "";
    return !old.includes(key) && !guide.includes(name);
  });
  expect(missing).toEqual([]);
});

test("its error codes and settings are there", () => {
  const table = guide.slice(guide.indexOf("An error is a"), guide.indexOf("## Ids and paths"));
  const codes = [...table.matchAll(/\| `([a-z]+_[a-z_]+)`(?:, `([a-z_]+)`)?/g)].flatMap(([, ...found]) => found);
  const named = codes.filter((code) => code !== undefined);
  expect(named.length).toBeGreaterThan(4);
  expect(named.filter((code) => !(code in ERRORS))).toEqual([]);
  const schema = JSON.stringify(fleetConfigJsonSchema());
  for (const key of [
    "acquireTimeoutMs",
    "idleTimeoutMs",
    "sessionLifetimeMs",
    "onFull",
    "convertDocuments",
    "sandboxPath",
  ])
    expect([key, guide.includes(key), schema.includes(`"${key}"`)]).toEqual([key, true, true]);
});

test("its routes are served", async () => {
  const stage = await openStage();
  try {
    const served = stage.gateway.routes.map(({ method, url }) => `${method} ${url.replace(/:\w+|\*/g, "{}")}`);
    const named = [...guide.matchAll(/\| `(GET|POST|PUT|DELETE) (\/[^`, ?]+)/g)].map(
      ([, method, url = ""]) => `${method} ${url.replace(/\{\w+\}/g, "{}")}`,
    );
    expect(named.length).toBeGreaterThan(4);
    expect(named.filter((route) => !served.includes(route))).toEqual([]);
  } finally {
    await stage.done();
  }
});
