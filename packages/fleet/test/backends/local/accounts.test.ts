/**
 * One sandbox, one host account: each has its own share of the kernel's budgets, and its own files, whatever their
 * owner on disk.
 */

import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import type { EngineEvent } from "../../../src/backend/backend.ts";
import { parseRef } from "../../../src/backends/local/objects/engine-ref.ts";
import type { DiskWorkspaces } from "../../../src/host/workspaces/disk-workspaces.ts";
import type { BackendStage, Made } from "../../../src/testing/backend-suite/stage.ts";
import { BUDGETS, exhaust } from "../account-budgets.ts";
import { beginObject, bind, FILE, homeOf, killedClaimsGo, NoMapping, uidOfProcess } from "../own-accounts.ts";
import { blueprint, initOf, isRoot, onStage, removeDaemon, settingsIn } from "./local-harness.ts";

afterAll(removeDaemon);

function uidOf(made: Made): number {
  return uidOfProcess(initOf(made.target.ref));
}

/** Reads the existing files, and makes writes that only an owner may. */
async function usesItsFiles(stage: BackendStage, made: Made, backend = stage.backend): Promise<void> {
  const { sandbox } = await stage.attach(made.target, backend);
  const script =
    "set -e; cat file; echo more >>file; chmod 600 file; mkdir -p new; touch new/one; mv new/one new/two; stat -c %u:%g . file new";
  const { stdout, stderr } = await sandbox.exec(script);
  expect(stderr + stdout.slice(stdout.indexOf("1000"))).toBe("1000:1000\n1000:1000\n1000:1000\n");
}

describe.skipIf(!isRoot)("sandboxes of root's fleet", () => {
  it("have an account each, and give it back when they end", () =>
    onStage(async (stage, harness) => {
      const [one, other] = [await stage.make(), await stage.make()];
      expect(stage.backend.capabilities.has("own-account")).toBe(true);
      const uids = [uidOf(one), uidOf(other)];
      expect(new Set([...uids, 0, 59_999]).size).toBe(4);
      expect(readdirSync(join(harness.home, "ids"))).toEqual([...uids, "number"].map(String).sort());
      await stage.destroy(one);
      await stage.destroy(other);
      expect(readdirSync(join(harness.home, "ids"))).toEqual(["number"]);
    }));

  it("that killed fleets had only claimed accounts for leave nothing when another fleet lists its sandboxes", () =>
    onStage(async (stage, harness) => {
      const unfinished = beginObject(join(harness.home, harness.fleetId, "objects"));
      await killedClaimsGo(stage, harness, "objects");
      expect(existsSync(unfinished)).toBe(false);
    }));

  it("see a workspace as their own, one after the other and bound late, and it keeps one owner on disk", () =>
    onStage(async (stage, harness) => {
      const key = stage.newKey();
      await stage.homeWith(key, FILE, "content\n");
      const cold = await stage.make(key);
      await usesItsFiles(stage, cold);
      await stage.destroy(cold);
      const place = homeOf(harness, key);
      const owners = ["", "workspace/file", "workspace/new/two"].map((name) => statSync(join(place, name)).uid);
      expect(owners).toEqual([59_999, 59_999, 59_999]);
      const blank = await stage.make(null);
      await usesItsFiles(stage, await bind(stage, blank, key, "moveIn"));
      await stage.destroy(blank);
    }));

  it("see as their own what another fleet, or an earlier release, has left to another account", () =>
    onStage(async (stage, harness) => {
      const [cold, late] = [stage.newKey(), stage.newKey()];
      for (const key of [cold, late]) await stage.homeWith(key, FILE, "content\n");
      // As if `local.uid` had been 60100 until now: every file, and the root last.
      for (const key of [cold, late]) chownTree(homeOf(harness, key), 60_100);
      await usesItsFiles(stage, await stage.make(cold));
      await usesItsFiles(stage, await bind(stage, await stage.make(null), late, "moveIn"));
      const { local } = settingsIn(harness.home, harness.fleetId);
      const other = await harness.open({ local: { ...local, uid: 60_200, gid: 60_200 } });
      const moved = stage.newKey();
      await stage.homeWith(moved, FILE, "content\n");
      await usesItsFiles(stage, await stage.make(moved, {}, other), other);
      expect(statSync(join(homeOf(harness, moved), "workspace/file")).uid).toBe(60_200);
    }));

  it("own their files where the kernel cannot map owners, and so does the fleet when it writes", () =>
    onStage(async (stage, harness) => {
      const backend = await harness.open({}, { mapping: new NoMapping() });
      const key = stage.newKey();
      await stage.homeWith(key, FILE, "content\n");
      const cold = await stage.make(key, {}, backend);
      await usesItsFiles(stage, cold, backend);
      expect(statSync(join(homeOf(harness, key), "workspace/file")).uid).toBe(uidOf(cold));
      const workspaces = backend.workspaces as DiskWorkspaces;
      const handle = await workspaces.locate(key);
      await handle?.files.write("workspace/from-outside", "x");
      handle?.close();
      const { sandbox } = await stage.attach(cold.target, backend);
      expect((await sandbox.exec("echo y >>from-outside && cat from-outside")).stdout).toBe("xy\n");
      await stage.destroy(cold, backend);
      const blank = await stage.make(null, {}, backend);
      await usesItsFiles(stage, await bind(stage, blank, key, "moveIn", backend), backend);
      const fresh = await stage.make(null, {}, backend);
      const bound = await bind(stage, fresh, stage.newKey(), "makeIn", backend);
      const { stdout } = await (await stage.attach(bound.target, backend)).sandbox.exec("touch a && stat -c %u . a");
      expect(stdout).toBe("1000\n1000\n");
      // And back to one owner on disk, with a fleet that can.
      await stage.destroy(bound, backend);
      await stage.destroy(blank, backend);
    }));

  it("of an earlier release, without an account of their own, are used and ended as before", () =>
    onStage(async (stage, harness) => {
      const made = await stage.make();
      const path = join(harness.home, harness.fleetId, "objects", parseRef(made.target.ref)?.name ?? "", "object.json");
      const { account, ...before } = JSON.parse(readFileSync(path, "utf8"));
      expect(account.uid).toBe(uidOf(made));
      writeFileSync(path, JSON.stringify(before));
      const peer = await harness.peer();
      expect((await (await stage.attach(made.target, peer)).sandbox.exec("echo here")).stdout).toBe("here\n");
      await stage.destroy(made, peer);
      // Its maker still has the account, and returns it when it forgets the sandbox.
      await stage.destroy(made);
      rmSync(join(harness.home, "ids", String(account.uid)), { recursive: true, force: true });
    }));

  it("are refused ids that another home has, when the fleet is opened", () =>
    onStage(async (_stage, harness) => {
      const home = mkdtempSync(join(tmpdir(), "sl-local-other-"));
      onTestFinished(() => rmSync(home, { recursive: true, force: true }));
      const idRegistry = join(home, "ids.sqlite");
      await harness.open({ accountIds: { first: 80_000, count: 100 } }, { idRegistry });
      const problem = await harness
        .open({ home, accountIds: { first: 80_099, count: 100 } }, { idRegistry })
        .catch((error: unknown) => error);
      expect(isSandlotError(problem, "config_invalid") && problem.details.problem).toContain(
        `those of the home ${harness.home}`,
      );
    }));

  it.each(BUDGETS)("cannot take another's $name", (budget) => onStage((stage) => exhaust(stage, budget)), 120_000);

  it("hear which limit keeps them from watching", () =>
    onStage(async (stage) => {
      const sandbox = await stage.sandbox();
      const take = BUDGETS[0]?.take ?? "";
      await sandbox.spawn(["perl", "-e", `${take} 1 while take(); open F, ">full"; sleep 600`]);
      await stage.eventually("full", async () => (await sandbox.exec("test -e full")).exitCode === 0);
      const first = async () => {
        for await (const _ of sandbox.files.watch("/mnt/user-data/workspace")) return;
      };
      await stage.rejects(first(), "watch_limit");
    }));
});

describe.skipIf(!isRoot)("a mounted directory of root's fleet", () => {
  const project = (owner: number) => {
    const path = mkdtempSync(join(tmpdir(), "sl-project-"));
    onTestFinished(() => rmSync(path, { recursive: true, force: true }));
    mkdirSync(join(path, "src"), { mode: 0o700 });
    writeFileSync(join(path, "src/main"), "theirs\n", { mode: 0o600 });
    chownTree(path, owner);
    chmodSync(path, 0o700);
    return path;
  };
  const mounting = (hostPath: string, readOnly = false) => ({
    blueprint: { ...blueprint, mounts: [{ hostPath, sandboxPath: "/mnt/project", readOnly }] },
  });
  const script =
    "cd /mnt/project && stat -c %u . src src/main && cat src/main && echo ours >src/made && echo more >>src/main";

  it.each([61_234, 0])("of the account %i can be written inside, and what is made belongs to that account", (owner) =>
    onStage(async (stage) => {
      const path = project(owner);
      for (const key of [stage.newKey(), null]) {
        const { target } = await stage.make(key, mounting(path));
        const { stdout, stderr } = await (await stage.attach(target)).sandbox.exec(script, { cwd: "/" });
        expect(stderr + stdout.split("\n").slice(0, 4).join()).toBe("1000,1000,1000,theirs");
      }
      expect(["src/made", "src/main"].map((name) => statSync(join(path, name)).uid)).toEqual([owner, owner]);
      expect(readFileSync(join(path, "src/main"), "utf8")).toBe("theirs\nmore\nmore\n");
    }),
  );

  it.each([
    [61_234, "theirs\n"],
    [0, ""],
  ])("of the account %i that is mounted read-only shows what is closed to others as %j", (owner, seen) =>
    onStage(async (stage) => {
      const path = project(owner);
      chmodSync(path, 0o755);
      chmodSync(join(path, "src"), 0o755);
      const { target } = await stage.make(stage.newKey(), mounting(path, true));
      const { sandbox } = await stage.attach(target);
      expect((await sandbox.exec("cat /mnt/project/src/main")).stdout).toBe(seen);
      expect((await sandbox.exec("touch /mnt/project/x")).stderr).toContain("Read-only file system");
    }),
  );

  it("is read-only where owners cannot be mapped, and the fleet says so; it is never given away", () =>
    onStage(async (stage, harness) => {
      const path = project(61_234);
      chmodSync(path, 0o755);
      const backend = await harness.open({}, { mapping: new NoMapping() });
      const events: EngineEvent[] = [];
      backend.watch((event) => events.push(event));
      const { target } = await stage.make(stage.newKey(), mounting(path), backend);
      const { sandbox } = await stage.attach(target, backend);
      expect((await sandbox.exec("touch /mnt/project/x")).stderr).toContain("Read-only file system");
      expect(statSync(path).uid).toBe(61_234);
      expect(events.filter(({ type }) => type === "housekeeping-failed")).toEqual([
        {
          type: "housekeeping-failed",
          task: "mounts",
          problem: `${path} is read-only at /mnt/project: it cannot be done here`,
        },
      ]);
    }));

  it("can be mounted twice, and beside another with another owner", () =>
    onStage(async (stage) => {
      const [outer, inner] = [project(61_234), project(61_235)];
      const mounts = [
        { hostPath: outer, sandboxPath: "/mnt/project", readOnly: false },
        { hostPath: outer, sandboxPath: "/mnt/again", readOnly: true },
        { hostPath: inner, sandboxPath: "/data", readOnly: false },
      ];
      const { target } = await stage.make(stage.newKey(), { blueprint: { ...blueprint, mounts } });
      const { sandbox } = await stage.attach(target);
      const { stderr } = await sandbox.exec(
        "touch /mnt/project/a /mnt/project/src/b /data/c && cat /mnt/again/src/main",
      );
      expect(stderr).toBe("");
      const owners = [join(outer, "a"), join(outer, "src/b"), join(inner, "c")].map((path) => statSync(path).uid);
      expect(owners).toEqual([61_234, 61_234, 61_235]);
      expect((await sandbox.exec("touch /mnt/again/x")).exitCode).not.toBe(0);
    }));
});

function chownTree(path: string, id: number): void {
  if (statSync(path).isDirectory()) for (const name of readdirSync(path)) chownTree(join(path, name), id);
  if (existsSync(path)) chownSync(path, id, id);
}
