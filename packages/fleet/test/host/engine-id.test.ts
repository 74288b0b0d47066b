/** The name of an engine that is a home on this machine. */

import { mkdtempSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { homeEngineId } from "../../src/host/engine-id.ts";

test("is one for every spelling of a home, and another for another home, machine or backend", () => {
  const home = mkdtempSync(join(realpathSync(tmpdir()), "sl-engine-"));
  onTestFinished(() => rmSync(home, { recursive: true }));
  symlinkSync(home, join(home, "link"));
  const id = homeEngineId("local", "machine-1", home);
  expect(id).toMatch(/^local-[0-9a-f]{20}$/);
  expect(homeEngineId("local", "machine-1", join(home, "link"))).toBe(id);
  expect(homeEngineId("local", "machine-1", `${home}/../${home.slice(home.lastIndexOf("/") + 1)}/`)).toBe(id);
  const others = [
    homeEngineId("local", "machine-2", home),
    homeEngineId("local", "machine-1", tmpdir()),
    homeEngineId("other", "machine-1", home),
    homeEngineId("local", "", home),
  ];
  expect(new Set([id, ...others]).size).toBe(5);
});
