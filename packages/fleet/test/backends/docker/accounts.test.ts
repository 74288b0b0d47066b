/**
 * One container, one account of the host: what one takes of the kernel's budgets is its own, and its files are its own too,
 * whoever they belong to on disk.
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
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { HostMounts, IdMapping } from "../../../src/host-accounts/index.ts";
import type { BackendStage, Key, Made } from "../../../src/testing/backend-suite/stage.ts";
import { BUDGETS, exhaust } from "../account-budgets.ts";
import { blueprint, containerOf, type DockerHarness, world } from "./docker-harness.ts";
import { describeOnEngine } from "./on-engine.ts";

const FILE = "/mnt/user-data/workspace/file";
const isRoot = process.getuid?.() === 0;

/** A kernel or a file system without id-mapped mounts. */
class NoMapping extends IdMapping {
  override async problem(): Promise<string | null> {
    return "it cannot be done here";
  }
}

describeOnEngine("containers of root's fleet", (onEngine, { docker }) => {
  const uidOf = async ({ target }: Made) => {
    const { State } = await docker.getContainer(containerOf(target.ref)).inspect();
    return Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${State.Pid}/status`, "utf8"))?.[1]);
  };
  const homeOf = ({ home, fleetId }: DockerHarness, { user, thread }: Key) =>
    join(home, fleetId, "homes", threadKeyOf(user, thread), "user-data");
  const usesItsFiles = async (stage: BackendStage, made: Made, backend: Backend = stage.backend) => {
    const { sandbox } = await stage.attach(made.target, backend);
    const uid = await uidOf(made);
    const script =
      "set -e; cat file; echo more >>file; chmod 600 file; mkdir -p new; touch new/two; stat -c %u . file new";
    const { stdout, stderr } = await sandbox.exec(script);
    expect(stderr + stdout.slice(stdout.indexOf(String(uid)))).toBe(`${uid}\n${uid}\n${uid}\n`);
  };
  const bind = async (stage: BackendStage, blank: Made, key: Key, backend: Backend = stage.backend): Promise<Made> => {
    const generation = stage.nextGeneration();
    const marker = stage.marker(blank, key, generation);
    await backend.workspaces.writeMarker(marker);
    await backend.workspaces.moveIn(stage.spot(blank, key, generation));
    const target = { ...blank.target, generation, token: marker.token };
    await backend.rebind(target, blank.target, stage.signal);
    return { ...blank, target, spec: { ...blank.spec, generation, token: marker.token } };
  };

  /** The workspace goes home, and with it what was kept of the sandbox. */
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
        await usesItsFiles(stage, cold);
        expect(statSync(join(homeOf(harness, key), "workspace/new/two")).uid).toBe(59_999);
        await stage.destroy(cold);
        const blank = await stage.make(null);
        const bound = await bind(stage, blank, key);
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
        const bound = await bind(stage, await stage.make(null, {}, backend), key, backend);
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
    const dead = { ...world, identity: { ...world.identity, pid: 2 ** 22 - 1, startTime: "1" } };
    const paths = [{ path: source, owner: { uid: 0, gid: 0 } }];
    const shown = await new HostMounts(root, mapping, dead).show("box-1", paths, { uid: 61_000, gid: 61_000 });
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
