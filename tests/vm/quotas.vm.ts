/**
 * Disk budgets that the kernel enforces, in real sandboxes on a real file system with project quotas. `TMPDIR` is on
 * it.
 */

import { execFileSync } from "node:child_process";
import { lstatSync, readdirSync, statfsSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Sandbox } from "@sandlot/contract";
import { afterAll, describe, expect, it } from "vitest";
import type { EngineEvent } from "../../packages/fleet/src/backend/backend.ts";
import { threadKeyOf } from "../../packages/fleet/src/backend/labels.ts";
import { localFindings } from "../../packages/fleet/src/backends/local/doctor.ts";
import { measureTree } from "../../packages/fleet/src/host/limits/disk/measure.ts";
import { parseReport } from "../../packages/fleet/src/host/limits/quota/programs.ts";
import { mountOf } from "../../packages/fleet/src/host/limits/quota/trial.ts";
import type { BackendStage, Key, Made } from "../../packages/fleet/src/testing/backend-suite/stage.ts";
import {
  blueprint,
  type LocalHarness,
  onStage,
  removeDaemon,
  settingsIn,
} from "../../packages/fleet/test/backends/local/local-harness.ts";

const MEGABYTE = 1024 * 1024;
const LIMITS = { diskBytes: 16 * MEGABYTE, filesMax: 500 };
const WORKSPACE = "/mnt/user-data/workspace";
const { mountPoint, type } = mountOf(tmpdir()) ?? { mountPoint: "", type: "" };

afterAll(removeDaemon);

describe(`project quotas on ${type}`, { timeout: 120_000 }, () => {
  it("are what the doctor says is in force", () =>
    onStage(async (_, { home, fleetId }) => {
      const found = (await localFindings(settingsIn(home, fleetId))).find(({ name }) => name === "disk limit");
      console.log(`doctor: ${found?.detail}`);
      expect(found?.detail).toContain("by project-quota");
      expect(limitedIds(fleetId, home)).toEqual([]);
    }));

  it("refuse the first byte past the budget, and disturb no other thread", () =>
    onStage(async (stage, { home, fleetId, backend }) => {
      const [key, other] = [stage.newKey(), stage.newKey()];
      const { sandbox } = await limited(stage, key);
      const neighbour = await limited(stage, other);
      const hits = hitsOf(backend.watch.bind(backend));

      // Two files: no single file may exceed the budget in any case.
      await sandbox.exec("head -c 1M /dev/zero > small");
      const dd = await sandbox.exec(["dd", "if=/dev/zero", "of=big", "bs=64K", "count=4000"]);
      expect(dd).toMatchObject({ status: "completed", exitCode: 1 });
      expect(dd.stderr).toMatch(/Disk quota exceeded|No space left on device/);
      expect(dd.stderr).toMatch(/\nsandlot: disk_limit_exceeded: the workspace may hold 16777216 bytes and 500 files/);
      expect(hits.map(({ limit }) => limit)).toContain("disk");

      const { bytes } = await measureTree(placeOf(home, fleetId, key), 10_000);
      console.log(
        `${type}: ${bytes} bytes of ${LIMITS.diskBytes} taken, overshoot ${Math.max(0, bytes - LIMITS.diskBytes)}`,
      );
      expect(bytes).toBeLessThanOrEqual(LIMITS.diskBytes);
      expect(bytes).toBeGreaterThan(LIMITS.diskBytes - 64 * 1024);

      for (const write of [
        () => sandbox.files.write(`${WORKSPACE}/more`, "x".repeat(100_000)),
        () => sandbox.files.upload(`${WORKSPACE}/more`, chunks(40)),
      ])
        await expect(write()).rejects.toMatchObject({ code: "disk_limit_exceeded" });

      expect((await neighbour.sandbox.exec("head -c 8M /dev/zero > mine; stat -c %s mine")).stdout).toBe("8388608\n");
      await sandbox.exec("rm big small");
      expect((await sandbox.exec("head -c 8M /dev/zero > again")).exitCode).toBe(0);
    }));

  it("refuse the first file past the budget", () =>
    onStage(async (stage, { home, fleetId }) => {
      const key = stage.newKey();
      const { sandbox } = await limited(stage, key);
      const made = await sandbox.exec("i=0; while : > f$i; do i=$((i+1)); done; echo $i");
      const { files } = await measureTree(placeOf(home, fleetId, key), 10_000);
      console.log(`${type}: ${files} files of ${LIMITS.filesMax}, of which the command made ${made.stdout.trim()}`);
      expect(files).toBe(LIMITS.filesMax);
      await expect(sandbox.files.write(`${WORKSPACE}/more`, "x")).rejects.toMatchObject({
        code: "disk_limit_exceeded",
      });
      await expect(sandbox.files.mkdir(`${WORKSPACE}/more`)).rejects.toMatchObject({ code: "disk_limit_exceeded" });
      expect((await sandbox.exec("rm f*; touch one")).exitCode).toBe(0);
    }));

  it("report what happens in the background", () =>
    onStage(async (stage, { backend }) => {
      const { sandbox } = await limited(stage, stage.newKey());
      const hits = hitsOf(backend.watch.bind(backend));
      await sandbox.exec("(head -c 64M /dev/zero > big; sleep 30) >/dev/null 2>&1 &");
      await expect.poll(() => hits.map(({ limit }) => limit), { timeout: 10_000 }).toContain("disk");
    }));

  it("cannot be left from inside, nor by moving things within", () =>
    onStage(async (stage) => {
      const { sandbox } = await limited(stage, stage.newKey());
      const left = await sandbox.exec("mkdir d && chattr -p 0 d; echo $?; chattr -P d; echo $?; lsattr -pd d");
      expect(left.stdout.split("\n").slice(0, 2)).toEqual(["1", "1"]);
      expect(left.stdout).toMatch(/^ *1\d{9} [-e]*P[-e]* d$/m);
      const moved = await sandbox.exec(
        "ln -s d l && mv l d/l && mv d ../uploads/d && mv ../uploads/d ../outputs && ls ../outputs/d",
      );
      expect(moved).toMatchObject({ exitCode: 0, stdout: "l\n", stderr: "" });
    }));

  it("come along when a blank takes the workspace late, new or old, and go home with it", () =>
    onStage(async (stage, harness) => {
      const { home, fleetId, backend } = harness;
      const key = stage.newKey();
      const first = await limited(stage, key);
      await first.sandbox.exec("head -c 10M /dev/zero > kept; ln -s kept link");
      await stage.destroy(first.made);
      const ids = limitedIds(fleetId, home);
      expect(ids).toHaveLength(1);
      for (const [who, step] of [
        [key, "moveIn"],
        [stage.newKey(), "makeIn"],
      ] as const) {
        const { sandbox, made, spot } = await bound(stage, who, step);
        const fill = await sandbox.exec("head -c 64M /dev/zero > big");
        expect(fill.stderr).toContain("sandlot: disk_limit_exceeded");
        const { bytes } = await measureTree(slotPath(home, fleetId, made), 10_000);
        expect(bytes).toBeLessThanOrEqual(LIMITS.diskBytes);
        expect(bytes).toBeGreaterThan(LIMITS.diskBytes - 64 * 1024);
        await stage.destroy(made);
        await backend.workspaces.moveHome(spot);
        expect(statfsSync(placeOf(home, fleetId, who)).bfree).toBe(0);
      }
      expect(limitedIds(fleetId, home)).toEqual(expect.arrayContaining([...ids]));
    }));

  it("give the number back on purge, and a wider budget to the next sandbox", () =>
    onStage(async (stage, { home, fleetId, backend }) => {
      const key = stage.newKey();
      const first = await limited(stage, key);
      await first.sandbox.exec("head -c 64M /dev/zero > big");
      await stage.destroy(first.made);
      const [id] = limitedIds(fleetId, home);
      const wide = await limited(stage, key, { diskBytes: 32 * MEGABYTE });
      expect((await wide.sandbox.exec("head -c 8M /dev/zero > more")).exitCode).toBe(0);
      expect(limitedIds(fleetId, home)).toEqual([id]);
      await stage.destroy(wide.made);
      const free = await stage.make(key);
      const { sandbox } = await stage.attach(free.target);
      expect((await sandbox.exec("head -c 40M /dev/zero > lots")).exitCode).toBe(0);
      await stage.destroy(free);
      await backend.workspaces.purge(stage.spot(free, key));
      expect(reportOf(id)).toMatchObject(
        [{ usedKib: 0, usedFiles: 0, isLimited: false }].slice(0, reportOf(id).length),
      );
      expect(readdirSync(join(home, fleetId, "projects"))).toEqual([]);
    }));

  it("are set on existing workspaces, but for those that cannot have one, which are watched and reported", () =>
    onStage(async (stage, { home, fleetId, backend }) => {
      const troubles: string[] = [];
      backend.watch((event) => event.type === "housekeeping-failed" && troubles.push(event.problem));
      const [plain, linked] = [stage.newKey(), stage.newKey()];
      for (const key of [plain, linked]) {
        const made = await stage.make(key);
        const { sandbox } = await stage.attach(made.target);
        await sandbox.exec("mkdir -p a/b && head -c 1M /dev/zero > a/b/c");
        await stage.destroy(made);
      }
      symlinkSync("a", join(placeOf(home, fleetId, linked), "workspace/link"));
      const held = await limited(stage, plain);
      expect(troubles).toEqual([]);
      expect((await held.sandbox.exec("head -c 64M /dev/zero > a/b/more")).stderr).toContain("the kernel refuses more");
      const watched = await limited(stage, linked);
      expect(troubles).toEqual([expect.stringContaining("cannot belong to a project")]);
      const stopped = await watched.sandbox.exec("for i in $(seq 900); do head -c 4M /dev/zero > f$i; done");
      expect(stopped.stderr).toContain("its commands were stopped");
      expect(limitedIds(fleetId, home)).toHaveLength(1);
    }));

  it("that a killed process has left are given up by the next", () =>
    onStage(async (stage, { home, fleetId, open }) => {
      const key = stage.newKey();
      const { made } = await limited(stage, key);
      await stage.destroy(made);
      const [id] = limitedIds(fleetId, home);
      const claims = join(home, fleetId, "projects", threadKeyOf(key.user, key.thread));
      execFileSync("rm", ["-rf", join(placeOf(home, fleetId, key))]);
      for (const name of readdirSync(claims)) execFileSync("touch", ["-d", "2 minutes ago", join(claims, name)]);
      const next = await open();
      await expect.poll(() => readdirSync(join(home, fleetId, "projects")), { timeout: 10_000 }).toEqual([]);
      await next.close();
      expect(reportOf(id).filter(({ isLimited }) => isLimited)).toEqual([]);
    }));
});

type LimitHit = Extract<EngineEvent, { type: "limit-hit" }>;

function hitsOf(watch: LocalHarness["backend"]["watch"]): readonly LimitHit[] {
  const hits: LimitHit[] = [];
  watch((event) => {
    if (event.type === "limit-hit") hits.push(event);
  });
  return hits;
}

async function limited(
  stage: BackendStage,
  key: Key,
  limits: Partial<typeof LIMITS> = LIMITS,
): Promise<{ sandbox: Sandbox; made: Made }> {
  const made = await stage.make(key, { blueprint: { ...blueprint, limits } });
  return { sandbox: (await stage.attach(made.target)).sandbox, made };
}

async function bound(stage: BackendStage, key: Key, step: "moveIn" | "makeIn") {
  const blank = await stage.make(null, { blueprint: { ...blueprint, limits: LIMITS } });
  const generation = stage.nextGeneration();
  const spot = stage.spot(blank, key, generation);
  await stage.backend.markers.write(stage.marker(blank, key, generation));
  await stage.backend.workspaces[step](spot);
  const target = { ...blank.target, generation, token: stage.newToken() };
  await stage.backend.rebind(target, blank.spec, stage.signal);
  return { sandbox: (await stage.attach(target)).sandbox, made: blank, spot };
}

function placeOf(home: string, fleetId: string, { user, thread }: Key): string {
  return join(home, fleetId, "homes", threadKeyOf(user, thread), "user-data");
}

function slotPath(home: string, fleetId: string, { created }: Made): string {
  return join(home, fleetId, "slots", created.place.slice("slot:".length), "mnt/user-data");
}

/** The numbers of a fleet's claims, each of which must have a limit in the kernel. */
function limitedIds(fleetId: string, home: string): readonly number[] {
  const projects = join(home, fleetId, "projects");
  if (lstatSync(projects, { throwIfNoEntry: false }) === undefined) return [];
  const ids = readdirSync(projects).flatMap((thread) => readdirSync(join(projects, thread)).map(Number.parseFloat));
  for (const id of ids) expect(reportOf(Math.floor(id))).toMatchObject([{ isLimited: true }]);
  return ids.map(Math.floor).sort();
}

function reportOf(id: number | undefined) {
  const text = execFileSync("repquota", ["-P", "-n", "-v", "-O", "csv", mountPoint], { encoding: "utf8" });
  return parseReport(text).filter((use) => use.id === id);
}

async function* chunks(count: number): AsyncGenerator<Uint8Array> {
  for (let index = 0; index < count; index += 1) yield new Uint8Array(MEGABYTE);
}
