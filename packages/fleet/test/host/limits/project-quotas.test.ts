/**
 * The part of project quotas that needs no kernel support: choosing numbers, reading program output and the mount
 * table, the records, and no change where quotas are missing. `npm run vm` shows the rest.
 */

import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ThreadKey } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { describeDisk } from "../../../src/host/limits/describe.ts";
import { ProjectQuotas } from "../../../src/host/limits/index.ts";
import { Claims } from "../../../src/host/limits/quota/claims.ts";
import { parseReport } from "../../../src/host/limits/quota/programs.ts";
import { chooseProjectId, givenProjectIds } from "../../../src/host/limits/quota/project-ids.ts";
import { lookThrough } from "../../../src/host/limits/quota/takable.ts";
import { findMount, lookForQuotas } from "../../../src/host/limits/quota/trial.ts";
import { errnoOf, inOurWords } from "../../../src/world/disk-trouble.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const world = systemWorld();
const THREAD = "0123456789abcdef0123456789abcdef" as ThreadKey;
const FIRST_ID = 2 ** 30;

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "sandlot-quota-"));
});
afterEach(() => rmSync(root, { recursive: true }));

describe("numbers of projects", () => {
  it("follow from the inode, and pass over what is taken", () => {
    expect(chooseProjectId(12n, new Set())).toBe(FIRST_ID + 12);
    const next = chooseProjectId(12n, new Set([FIRST_ID + 12]));
    expect(next).not.toBe(FIRST_ID + 12);
    expect(chooseProjectId(12n, new Set([FIRST_ID + 12, next ?? 0]))).not.toBe(next);
  });

  it("stay above what people give and within 32 bits, however large inodes are", () => {
    for (const inode of [0n, 1n, 2n ** 30n - 1n, 2n ** 30n, 2n ** 32n, 2n ** 63n, 2n ** 64n - 1n]) {
      const id = chooseProjectId(inode, new Set()) ?? 0;
      expect(id).toBeGreaterThanOrEqual(FIRST_ID);
      expect(id).toBeLessThan(2 ** 31);
    }
  });

  it("run out at some time instead of being looked for for ever", () => {
    const all = { has: () => true } as unknown as ReadonlySet<number>;
    expect(chooseProjectId(1n, all)).toBe(null);
  });

  it("are not those that the administrator has given", () => {
    const [projects, names] = [join(root, "projects"), join(root, "projid")];
    writeFileSync(projects, "# a comment\n42:/srv/data\n1073741836:/srv/more\n");
    writeFileSync(names, "logs:43\nbad\n#x:9\n");
    expect([...givenProjectIds([projects, names, join(root, "missing")])]).toEqual([42, 1073741836, 43]);
  });
});

describe("output of the quota programs", () => {
  it("is read whatever else they print", () => {
    const text =
      "Project,BlockStatus,FileStatus,BlockUsed,BlockSoftLimit,BlockHardLimit,BlockGrace,FileUsed,FileSoftLimit,FileHardLimit,FileGrace\n" +
      "#0,ok,ok,24,0,0,,3,0,0,\n#1073741900,hard,ok,1024,0,1024,,2,0,10,\n\n*** Status for project quotas on device /dev/x\n";
    expect(parseReport(text)).toEqual([
      { id: 0, usedKib: 24, usedFiles: 3, isLimited: false },
      { id: 1073741900, usedKib: 1024, usedFiles: 2, isLimited: true },
    ]);
  });

  it("is asked of the file system that the directory lies on", () => {
    const table =
      "29 1 8:1 / / rw - ext4 /dev/sda1 rw\n" +
      "30 29 8:17 /part /srv/bound rw - xfs /dev/sdb1 rw,prjquota\n" +
      "31 29 8:17 / /srv/my\\040disk rw shared:1 - xfs /dev/sdb1 rw,attr2,prjquota\n" +
      "32 29 259:300 / /big rw - ext4 /dev/nvme rw\n";
    expect(findMount(table, 0x811)).toEqual({
      mountPoint: "/srv/my disk",
      type: "xfs",
      options: ["rw", "attr2", "prjquota"],
    });
    // 259:300: minors beyond 255 are kept above the major.
    expect(findMount(table, (259 << 8) | (300 & 0xff) | ((300 & ~0xff) << 12))?.mountPoint).toBe("/big");
    expect(findMount(table, 0x902)).toBe(null);
  });

  it("about a full quota is understood, though Node has no word for it", () => {
    const error = Object.assign(new Error("write"), { code: "Unknown system error -122", errno: -122 });
    expect(errnoOf(error)).toBe("EDQUOT");
    expect(inOurWords(error, "/a")).toMatchObject({ code: "disk_limit_exceeded" });
  });
});

describe("looking for quotas", () => {
  const on = (type: string, ...options: string[]) => ({ mountPoint: "/disk", type, options });

  it("says why there are none", () => {
    const reason = (mount: ReturnType<typeof on> | null, isRoot = true) => {
      const sight = lookForQuotas(root, isRoot, () => mount);
      return sight.possible ? "possible" : sight.reason;
    };
    expect(reason(null)).toContain("mount table");
    expect(reason(on("btrfs", "prjquota"))).toContain("btrfs");
    expect(reason(on("ext4", "rw"))).toContain("without prjquota");
    expect(reason(on("ext4", "prjquota"), false)).toContain("root");
    expect([reason(on("ext4", "prjquota")), reason(on("xfs", "pquota"))]).toEqual(["possible", "possible"]);
  });

  it("is described as what is in force", () => {
    expect(describeDisk({ possible: true, mountPoint: "/disk", type: "xfs" })).toMatchObject({ by: "project-quota" });
    const watched = describeDisk({ possible: false, reason: "the file system is tmpfs" });
    expect(watched).toMatchObject({ by: "watcher" });
    expect(watched.says).toContain("no project quotas: the file system is tmpfs");
  });
});

describe("claims", () => {
  const claim = { thread: THREAD, id: FIRST_ID + 5, inode: 2n ** 63n + 1n, limits: { kib: 20, files: 0 } };

  it("are read as they were written, and leave nothing when dropped", () => {
    const claims = new Claims(root);
    const [coming, complete] = [
      { ...claim, isComplete: false },
      { ...claim, isComplete: true },
    ];
    expect([claims.all(), claims.of(THREAD)]).toEqual([[], []]);
    claims.write(coming);
    expect(claims.all()).toEqual([coming]);
    claims.change(coming, complete);
    expect(claims.of(THREAD)).toEqual([complete]);
    expect(claims.writtenAtMs(coming)).toBe(null);
    claims.drop(complete);
    claims.drop(complete);
    expect(readdirSync(join(root, "projects"))).toEqual([]);
  });

  it("are not read from foreign files", () => {
    const directory = join(root, "projects", THREAD);
    mkdirSync(directory, { recursive: true });
    for (const name of ["1.2.3", "a.b.c.d", "1.2.3.4.going"]) writeFileSync(join(directory, name), "");
    writeFileSync(join(root, "projects", "file"), "");
    expect(new Claims(root).all()).toEqual([]);
  });
});

describe("a workspace", () => {
  it("is looked through before it is given to a project", async () => {
    mkdirSync(join(root, "a/b"), { recursive: true });
    expect(await lookThrough(root)).toEqual({
      root,
      directories: [root, join(root, "a"), join(root, "a/b")],
      hasFiles: false,
    });
    writeFileSync(join(root, "a/b/c"), "x");
    expect((await lookThrough(root)).hasFiles).toBe(true);
    symlinkSync("/etc", join(root, "a/link"));
    await expect(lookThrough(root)).rejects.toThrow("a/link cannot belong to a project");
  });

  it("is left alone where there are no quotas", async () => {
    const problems: unknown[] = [];
    let looks = 0;
    const look = () => {
      looks += 1;
      return { possible: false, reason: "none" } as const;
    };
    const quotas = new ProjectQuotas({ root, world, look, onProblem: (error) => problems.push(error) });
    await quotas.hold(THREAD, root, { diskBytes: 1, filesMax: 1 });
    await quotas.release(THREAD);
    await quotas.sweep();
    expect([quotas.isConceivable, quotas.holds(THREAD, root), looks]).toEqual([false, false, 1]);
    expect([readdirSync(root), problems]).toEqual([[], []]);
  });

  it("is watched, and nothing is left, where the table promises what the file system does not have", async () => {
    const look = () => ({ possible: true, mountPoint: root, type: "ext4" }) as const;
    const problems: unknown[] = [];
    const quotas = new ProjectQuotas({ root, world, look, onProblem: (error) => problems.push(error) });
    mkdirSync(join(root, "user-data"));
    await quotas.hold(THREAD, join(root, "user-data"), { diskBytes: 4_096 });
    expect(await quotas.sight()).toMatchObject({ possible: false });
    expect([quotas.isConceivable, quotas.holds(THREAD, join(root, "user-data"))]).toEqual([false, false]);
    expect(readdirSync(root)).toEqual(["user-data"]);
    expect(problems).toEqual([expect.objectContaining({ message: expect.stringContaining("cannot be used") })]);
  });
});
