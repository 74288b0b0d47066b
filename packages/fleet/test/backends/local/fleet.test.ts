/** The local backend in a fleet, as a new user runs it. */

import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import type { FleetEvent, FleetId } from "@sandlot/contract";
import { expect, it, onTestFinished } from "vitest";
import { makeLayout } from "../../../src/host/layout.ts";
import { openFleet } from "../../../src/open-fleet.ts";
import { isRoot } from "./local-harness.ts";

function place(): string {
  const directory = mkdtempSync(join(tmpdir(), "sl-fleet-"));
  chmodSync(directory, 0o755);
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

it("leaves nothing of a late-bound sandbox behind, once it is closed", { timeout: 60_000 }, async (context) => {
  if (!isRoot) return context.skip("only a root fleet binds late");
  const home = place();
  const fleet = await openFleet({ home, backend: "local", pool: { default: 1 } });
  try {
    const seen: string[] = [];
    fleet.events.on((event) => void seen.push(event.type === "lease-acquired" ? event.path : event.type));
    await expect.poll(() => seen).toContain("sandbox-created");
    const lease = await fleet.acquire({ thread: "late" });
    expect(seen).toContain("blank");
    await lease.sandbox.files.write("/mnt/user-data/workspace/note", "kept");
    await lease.release();
    await fleet.destroy({ thread: "late" });
  } finally {
    await fleet.close({ destroy: true });
  }
  const [fleetName = ""] = readdirSync(home).filter((name) => name.startsWith("fleet-"));
  expect(readdirSync(join(home, fleetName, "objects"))).toEqual([]);
});

it("reports a limit that was hit, with its sandbox", { timeout: 60_000 }, async (context) => {
  if (!isRoot) return context.skip("control groups take root");
  const blueprints = { default: { limits: { memoryBytes: 160 * 1024 * 1024 } } };
  const fleet = await openFleet({ home: place(), backend: "local", blueprints });
  try {
    const { sandbox } = await fleet.acquire({ thread: "hungry", user: "somebody" });
    const heard: FleetEvent[] = [];
    fleet.events.on((event) => void heard.push(event), "limit-hit");
    await sandbox.exec(`perl -e 'my $x = "a" x (300 << 20)'`);
    const { id: sandboxId, generation } = sandbox;
    expect(heard).toMatchObject([{ sandboxId, generation, limit: "memory", thread: "hungry", user: "somebody" }]);
  } finally {
    await fleet.close({ destroy: true });
  }
});

it("limits a sandbox without configured limits, and shows them", { timeout: 60_000 }, async (context) => {
  if (!isRoot) return context.skip("control groups take root");
  const fleet = await openFleet({ home: place(), backend: "local" });
  try {
    const { sandbox } = await fleet.acquire({ thread: "plain" });
    const { memoryMaxBytes, processMax } = await sandbox.usage();
    console.log(`by default: ${memoryMaxBytes} bytes of memory, ${processMax} processes`);
    expect(memoryMaxBytes).toBeLessThanOrEqual(Math.max(totalmem() / 2, 512 * 1024 * 1024));
    expect(processMax).toBeLessThanOrEqual(4_096);
    const disk = async () => (await sandbox.usage()).diskBytes ?? 0;
    const before = await disk();
    await sandbox.files.write("big", Buffer.alloc(8 * 1024 * 1024));
    await expect.poll(disk, { timeout: 30_000 }).toBeGreaterThanOrEqual(before + 8 * 1024 * 1024);
    expect((await sandbox.usage()).diskMaxBytes).toBeGreaterThan(8 * 1024 * 1024);
    // The kernel's own limit, from inside: no file beyond the disk budget.
    expect((await sandbox.exec("ulimit -f")).stdout).toMatch(/^\d+$/m);
  } finally {
    await fleet.close({ destroy: true });
  }
});

it("works without namespaces in a home that it has made itself", { timeout: 60_000 }, async () => {
  const home = join(place(), "fresh");
  const fleet = await openFleet({ home, backend: "local", local: { isolation: "unsafe-process" } });
  try {
    const { sandbox } = await fleet.acquire({ thread: "one" });
    expect((await sandbox.exec("echo works > note && cat note")).stdout).toBe("works\n");
  } finally {
    await fleet.close({ destroy: true });
  }
});

it("says without namespaces which directory is closed", { timeout: 60_000 }, async (context) => {
  if (!isRoot) return context.skip("only a root fleet runs sandboxes as another account");
  const around = join(place(), "closed");
  mkdirSync(around, { mode: 0o700 });
  const fleet = await openFleet({
    home: join(around, "home"),
    backend: "local",
    local: { isolation: "unsafe-process" },
  });
  try {
    await expect(fleet.acquire({ thread: "one" })).rejects.toMatchObject({
      code: "isolation_unavailable",
      details: { problem: expect.stringContaining(`cannot pass ${around}`) },
    });
  } finally {
    await fleet.close({ destroy: true });
  }
});

it("has one place for sockets, however its home is spelled", () => {
  const around = place();
  const [real, link] = [join(around, "long".repeat(20)), join(around, "link")];
  mkdirSync(real);
  symlinkSync(real, link);
  const layouts = [real, link].map((home) => makeLayout(home, "fleet-spelled" as FleetId, tmpdir()));
  onTestFinished(() => rmSync(layouts[0]?.sockets ?? around, { recursive: true, force: true }));
  expect(layouts[0]).toEqual(layouts[1]);
});
