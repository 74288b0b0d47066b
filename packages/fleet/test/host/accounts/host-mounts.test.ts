/** The next start removes the leftovers of a killed process, whatever state they are in. */

import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { HostMounts } from "../../../src/host/accounts/host-mounts.ts";
import { IdMapping } from "../../../src/host/accounts/id-mapping.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "sl-host-mounts-"));
  mkdirSync(join(root, "mapped/sandbox-1"), { recursive: true });
});
afterEach(() => {
  vi.doUnmock("@sandlot/sandboxd");
  vi.resetModules();
  rmSync(root, { recursive: true, force: true });
});

const isRoot = process.getuid?.() === 0;

test.runIf(isRoot)("a half-written maker is that of a killed process", () => {
  writeFileSync(join(root, "mapped/sandbox-1/maker"), '{"bootId":"');
  writeFileSync(join(root, "mapped/sandbox-1/0"), "");
  new HostMounts(root, new IdMapping(), systemWorld()).sweep();
  expect(existsSync(join(root, "mapped/sandbox-1"))).toBe(false);
});

test("without the native part nothing is taken away, and the sweep ends", async () => {
  vi.resetModules();
  vi.doMock("@sandlot/sandboxd", () => ({ sandboxdFiles: () => ({ koffi: join(root, "not-there.node") }) }));
  const own = await import("../../../src/host/accounts/host-mounts.ts");
  const mapping = await import("../../../src/host/accounts/id-mapping.ts");
  writeFileSync(join(root, "mapped/sandbox-1/maker"), "");
  writeFileSync(join(root, "mapped/sandbox-1/0"), "");
  new own.HostMounts(root, new mapping.IdMapping(), systemWorld()).sweep();
  expect(existsSync(join(root, "mapped/sandbox-1/0"))).toBe(true);
});
