/**
 * Docker outside of Docker: a fleet whose directories have other names at the engine.
 */

import { spawn } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { FleetId } from "@sandlot/contract";
import { expect, it } from "vitest";
import { blueprint, daemonFiles, settingsIn } from "./docker-harness.ts";
import { describeOnEngine } from "./on-engine.ts";

const FLEET = fileURLToPath(new URL("./mapped-fleet.ts", import.meta.url));

describeOnEngine("a fleet that sees other paths than its engine", (_onEngine, engine) => {
  it("has its directories mounted by the engine's names, and only what was mapped", { timeout: 120_000 }, async () => {
    const place = mkdtempSync(join(tmpdir(), "sl-dood-"));
    const [inside, outside] = [join(place, "in"), join(place, "out")];
    try {
      chmodSync(place, 0o711);
      for (const directory of [inside, outside, join(outside, "data")]) mkdirSync(directory, { mode: 0o755 });
      writeFileSync(join(outside, "data/file"), "of the host", { mode: 0o644 });
      const settings = settingsIn(join(inside, "h"), "fleet-dood" as FleetId, engine, {
        hostPaths: { [inside]: outside },
      });
      const mounts = [{ hostPath: join(inside, "data"), sandboxPath: "/mnt/data", readOnly: true }];
      const installation = { daemon: await daemonFiles() };
      const args = [settings, installation, { ...blueprint, mounts }].map((value) => JSON.stringify(value));
      // The engine is not in this namespace: it sees `inside` as an empty directory.
      const child = spawn(
        "unshare",
        [
          ...["--mount", "--propagation", "private", "/bin/sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"'],
          ...[outside, inside, process.execPath, "--conditions=sandlot-source", FLEET, ...args],
        ],
        { stdio: ["pipe", "pipe", "inherit"] },
      );
      const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
      const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
      const { value } = await lines.next();
      if (value === undefined) throw new Error(`it ended with ${await ended}`);
      const { containers, ...found } = JSON.parse(value) as { containers: string[] };
      const inspected = await Promise.all(containers.map((id) => engine.docker.getContainer(id).inspect()));
      child.stdin.end("go on\n");
      expect(found).toEqual({
        note: "written inside\n",
        seen: "of the host",
        refused: "mount_refused",
        stdout: "blank\n",
      });
      for (const { Mounts } of inspected)
        for (const { Source } of Mounts.filter(({ Type }) => Type === "bind")) expect(Source).toContain(`${outside}/`);
      expect(await ended).toBe(0);
      expect(readdirSync(inside)).toEqual([]);
      const left = await engine.docker.listContainers({ all: true, filters: { label: ["sandlot.fleet=fleet-dood"] } });
      expect(left).toEqual([]);
    } finally {
      rmSync(place, { recursive: true, force: true });
    }
  });
});
