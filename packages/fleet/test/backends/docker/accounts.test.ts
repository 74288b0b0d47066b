/**
 * One container, one host account: each has its own share of the kernel's budgets, and its own files, whatever their
 * owner on disk.
 */

import {
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
import { expect, it, onTestFinished } from "vitest";
import type { Backend } from "../../../src/backend/backend.ts";
import { HostMounts, IdMapping } from "../../../src/host/accounts/index.ts";
import type { BackendStage, Key, Made } from "../../../src/testing/backend-suite/stage.ts";
import { BUDGETS, exhaust } from "../account-budgets.ts";
import { bind, claimedUid, FILE, homeOf, killed, killedClaimsGo, NoMapping, uidOfProcess } from "../own-accounts.ts";
import { blueprint, containerOf, world } from "./docker-harness.ts";
import { describeOnEngine } from "./on-engine.ts";

const isRoot = process.getuid?.() === 0;

describeOnEngine("containers of root's fleet", (onEngine, { docker }) => {
  const uidOf = async ({ target }: Made) => {
    const { State } = await docker.getContainer(containerOf(target.ref)).inspect();
    return uidOfProcess(State.Pid);
  };
  const usesItsFiles = async (stage: BackendStage, made: Made, backend: Backend = stage.backend) => {
    const { sandbox } = await stage.attach(made.target, backend);
    const uid = await uidOf(made);
    const script =
      "set -e; cat file; echo more >>file; chmod 600 file; mkdir -p new; touch new/two; stat -c %u . file new";
    const { stdout, stderr } = await sandbox.exec(script);
    expect(stderr + stdout.slice(stdout.indexOf(String(uid)))).toBe(`${uid}\n${uid}\n${uid}\n`);
  };
  /** The workspace moves home, with the files kept of the sandbox. */
  const end = async (stage: BackendStage, bound: Made, key: Key, backend: Backend = stage.backend) => {
    await stage.destroy(bound, backend);
    await backend.workspaces.moveHome(stage.spot(bound, key));
    expect(await stage.refs(backend)).not.toContain(bound.target.ref);
  };

  it.skipIf(!isRoot)(
    "have an account each, see a workspace as their own, and leave one owner on disk",
    () =>
      onEngine(async (stage, harness) => {
        expect(stage.backend.capabilities.has("own-account")).toBe(true);
        const key = stage.newKey();
        await stage.homeWith(key, FILE, "content\n");
        const [cold, other] = [await stage.make(key), await stage.make()];
        expect(new Set([await uidOf(cold), await uidOf(other), 0, 59_999]).size).toBe(4);
        for (const made of [cold, other]) expect(await uidOf(made)).toBe(claimedUid(harness, made));
        await usesItsFiles(stage, cold);
        expect(statSync(join(homeOf(harness, key), "workspace/new/two")).uid).toBe(59_999);
        await stage.destroy(cold);
        const blank = await stage.make(null);
        const bound = await bind(stage, blank, key, "moveIn");
        await usesItsFiles(stage, bound);
        expect(readdirSync(join(harness.home, harness.fleetId, "mapped"))).toEqual([]);
        expect(readFileSync("/proc/self/mountinfo", "utf8")).not.toContain(harness.home);
        await stage.destroy(other);
        await end(stage, bound, key);
        expect(readdirSync(join(harness.home, "ids"))).toEqual(["number"]);
      }),
    120_000,
  );

  it.skipIf(!isRoot)(
    "that killed fleets had only claimed accounts for leave nothing when another fleet lists its containers",
    () => onEngine((stage, harness) => killedClaimsGo(stage, harness, "containers")),
    120_000,
  );

  it.skipIf(!isRoot)(
    "own their files where the kernel cannot map owners",
    () =>
      onEngine(async (stage, harness) => {
        const backend = await harness.open({}, { mapping: new NoMapping() });
        const key = stage.newKey();
        await stage.homeWith(key, FILE, "content\n");
        const cold = await stage.make(key, {}, backend);
        await usesItsFiles(stage, cold, backend);
        expect(statSync(join(homeOf(harness, key), "workspace/file")).uid).toBe(await uidOf(cold));
        await stage.destroy(cold, backend);
        const bound = await bind(stage, await stage.make(null, {}, backend), key, "moveIn", backend);
        await usesItsFiles(stage, bound, backend);
        await end(stage, bound, key, backend);
      }),
    120_000,
  );

  it.skipIf(!isRoot)(
    "write a mounted directory as its owner",
    () =>
      onEngine(async (stage) => {
        const path = mkdtempSync(join(tmpdir(), "sl-project-"));
        onTestFinished(() => rmSync(path, { recursive: true, force: true }));
        writeFileSync(join(path, "file"), "theirs\n", { mode: 0o600 });
        for (const one of [join(path, "file"), path]) chownSync(one, 61_234, 61_234);
        const mounts = [{ hostPath: path, sandboxPath: "/mnt/project", readOnly: false }];
        const made = await stage.make(stage.newKey(), { blueprint: { ...blueprint, mounts } });
        const { sandbox } = await stage.attach(made.target);
        const { stdout, stderr } = await sandbox.exec(
          "cd /mnt/project && cat file && echo ours >made && stat -c %u made",
        );
        expect(stderr + stdout).toBe(`theirs\n${await uidOf(made)}\n`);
        expect(statSync(join(path, "made")).uid).toBe(61_234);
      }),
    120_000,
  );

  it.skipIf(!isRoot)("leave no mount on the host when the fleet is killed during a start", async () => {
    const root = mkdtempSync(join(tmpdir(), "sl-mapped-"));
    onTestFinished(() => rmSync(root, { recursive: true, force: true }));
    const [source, mapping] = [join(root, "source"), new IdMapping()];
    mkdirSync(source);
    writeFileSync(join(source, "kept"), "");
    const paths = [{ path: source, owner: { uid: 0, gid: 0 } }];
    const shown = await new HostMounts(root, mapping, killed).show("box-1", paths, { uid: 61_000, gid: 61_000 });
    expect(statSync(join(shown.get(source) ?? "", "kept")).uid).toBe(61_000);
    const next = new HostMounts(root, mapping, world);
    next.sweep();
    expect([existsSync(join(root, "mapped/box-1")), existsSync(join(source, "kept"))]).toEqual([false, true]);
    expect(readFileSync("/proc/self/mountinfo", "utf8")).not.toContain(root);
    mapping.close();
  });

  const reachable = BUDGETS.filter(({ rlimit }) => rlimit === undefined);
  it.skipIf(!isRoot).each(reachable)(
    "cannot take another's $name",
    (budget) => onEngine((stage) => exhaust(stage, budget)),
    180_000,
  );
});
