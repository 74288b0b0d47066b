/** Which mounts are allowed where, and their effect inside. */

import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { findMisplaced } from "../../../src/host/mounts/mount-points.ts";
import { checkMounts } from "../../../src/host/mounts/mounts.ts";
import { blueprint, isRoot, onStage, removeDaemon } from "./local-harness.ts";

afterAll(removeDaemon);

describe("a mount", () => {
  it.each([
    ["/mnt/user-data", "/mnt/user-data is reserved"],
    ["/mnt/user-data/", "/mnt/user-data is reserved"],
    ["//mnt//user-data", "/mnt/user-data is reserved"],
    ["/mnt/./user-data/workspace", "/mnt/user-data is reserved"],
    ["/mnt/extra/../user-data", "must not contain .."],
    ["/mnt/user-data/workspace/deep", "/mnt/user-data is reserved"],
    ["/mnt/acp-workspace", "/mnt/acp-workspace is reserved"],
    ["/mnt/skills/one", "/mnt/skills is reserved"],
    ["/mnt", "/mnt is reserved"],
    ["/mnt/", "/mnt is reserved"],
    ["/", "/ is reserved"],
    ["/etc/passwd", "/etc is reserved"],
    ["/usr/local/bin", "/usr is reserved"],
    ["/proc/self", "/proc is reserved"],
    ["/run/sandlot", "/run is reserved"],
    ["/home/sandbox", "/home/sandbox is reserved"],
    ["/home/sandbox/.cache", "/home/sandbox is reserved"],
    ["/home/temporary", "/home/temporary is reserved"],
    ["mnt/extra", "must be absolute"],
  ])("at %s is refused", (sandboxPath, problem) => {
    expect(refusal("/usr/share", sandboxPath)).toContain(problem);
  });

  it.each(["/mnt/extra", "/data", "/mnt/user-data-2", "/opt/tool", "/mnt/extra/deep/"])(
    "at %s is taken",
    (sandboxPath) => expect(refusal("/usr/share", sandboxPath)).toBeNull(),
  );

  it("of what is not there says so, with what to do", () => {
    expect(refusal("/no/such/directory", "/data")).toContain("does not exist; create it first");
  });

  it("of the kernel's views, of devices, and of the fleet's own directory is refused, through links too", () => {
    const { directory } = place();
    const root = join(directory, "home/fleet");
    mkdirSync(join(root, "homes/thread"), { recursive: true });
    symlinkSync("/proc", join(directory, "link"));
    symlinkSync(join(root, "homes"), join(directory, "sly"));
    expect(refusal("/proc/sys", "/data", root)).toContain("/proc shows the machine");
    expect(refusal(join(directory, "link"), "/data", root)).toContain("/proc shows the machine");
    expect(refusal("/dev/null", "/data", root)).toContain("only directories and files");
    expect(refusal(join(root, "homes/thread"), "/data", root)).toContain("lies in the fleet's own directory");
    expect(refusal(join(directory, "sly"), "/data", root)).toContain("lies in the fleet's own directory");
    expect(refusal(directory, "/data", root)).toContain("every thread's data");
    expect(refusal("/", "/data", root)).toContain("every thread's data");
  });

  it("that a sandbox could replace through another one is refused", () => {
    const { directory } = place();
    mkdirSync(join(directory, "inner"));
    const outer = { hostPath: directory, sandboxPath: "/data", readOnly: false };
    const inner = { hostPath: join(directory, "inner"), sandboxPath: "/inner", readOnly: true };
    expect(() => checkMounts([outer, inner], null, "/usr/share")).toThrow(/could replace it/);
    expect(checkMounts([{ ...outer, readOnly: true }, inner], null, "/usr/share").length).toBe(2);
    // Whichever blueprint lets its sandboxes write there, and whatever they have changed there since.
    const blueprints = { other: { blueprint: { mounts: [outer] } } };
    expect(() => checkMounts([inner], null, "/usr/share", blueprints)).toThrow(/could replace it/);
    rmSync(join(directory, "inner"), { recursive: true });
    symlinkSync("/etc", join(directory, "inner"));
    expect(() => checkMounts([inner], null, "/usr/share", blueprints)).toThrow(/could replace it/);
    expect(() => checkMounts([], join(directory, "inner"), "/usr/share", blueprints)).toThrow(/could replace it/);
    const around = join(place().directory, "around");
    symlinkSync(join(directory, "inner"), around);
    expect(() => checkMounts([{ ...inner, hostPath: around }], null, "/usr/share", blueprints)).toThrow(
      /could replace it/,
    );
    expect(checkMounts([outer], null, "/usr/share", blueprints).length).toBe(1);
  });

  it("in another one is looked up there: no link, no wrong kind, nothing missing", () => {
    const { directory } = place();
    mkdirSync(join(directory, "real/deep"), { recursive: true });
    writeFileSync(join(directory, "file"), "");
    symlinkSync("../mnt/user-data", join(directory, "relative"));
    symlinkSync("/newroot/mnt/user-data", join(directory, "absolute"));
    symlinkSync("real", join(directory, "harmless"));
    const outer = { hostPath: directory, sandboxPath: "/data", readOnly: true };
    const tried = (sandboxPath: string, hostPath = "/usr/share") =>
      problemOf(() => checkMounts([{ hostPath, sandboxPath, readOnly: true }, outer], null, "/usr/lib"));
    expect(tried("/data/real")).toBeNull();
    expect(tried("/data/real/deep")).toBeNull();
    expect(tried("/data/file", "/etc/passwd")).toBeNull();
    for (const path of ["relative", "relative/workspace", "absolute", "harmless", "harmless/deep"])
      expect(tried(`/data/${path}`), path).toContain("is a symbolic link");
    expect(tried("/data/real/missing")).toContain("does not exist; create it first");
    expect(tried("/data/file")).toContain("is no directory");
    expect(tried("/data/file/deep")).toContain("is no directory");
    expect(tried("/data/real", "/etc/passwd")).toContain("is no file");
  });

  it("in another one that sandboxes may write, under whatever name, is refused", () => {
    const { directory } = place();
    mkdirSync(join(directory, "shared/spot/deep"), { recursive: true });
    const shared = join(directory, "shared");
    const inner = { hostPath: "/usr/share", sandboxPath: "/data/shared/spot", readOnly: true };
    const outer = { hostPath: directory, sandboxPath: "/data", readOnly: true };
    const writable = { hostPath: shared, sandboxPath: "/elsewhere", readOnly: false };
    const tried = (mounts: Parameters<typeof checkMounts>[0], blueprints = {}) =>
      problemOf(() => checkMounts(mounts, null, "/usr/lib", blueprints));
    expect(tried([outer, inner])).toBeNull();
    expect(tried([{ ...outer, readOnly: false }, inner])).toContain("could put a link there");
    expect(tried([outer, inner, writable])).toContain("could put a link there");
    expect(tried([outer, inner], { other: { blueprint: { mounts: [writable] } } })).toContain("could put a link there");
    // A mount at its own host path cannot be replaced from inside.
    expect(tried([outer, { ...inner, sandboxPath: "/data/shared" }, writable])).toBeNull();
  });
});

describe("a mounted directory", () => {
  it("is seen at its path in a thread's sandbox and in a blank, and read-only means EROFS", () =>
    onStage(async (stage, harness) => {
      const { directory } = place();
      writeFileSync(join(directory, "note"), "from the host");
      mkdirSync(join(directory, "writable"), { mode: 0o777 });
      chmodSync(join(directory, "writable"), 0o777);
      const backend = await harness.open({ skillsPath: directory });
      const mounts = [
        { hostPath: directory, sandboxPath: "/mnt/extra", readOnly: true },
        { hostPath: join(directory, "note"), sandboxPath: "/data/note", readOnly: true },
      ];
      // Without late binding there are no blanks: an ordinary user's blank could write in its own slot.
      for (const key of isRoot ? [stage.newKey(), null] : [stage.newKey()]) {
        const made = await stage.make(key, { blueprint: { ...blueprint, mounts } }, backend);
        const { sandbox } = await stage.attach(made.target, backend);
        for (const path of ["/mnt/extra/note", "/data/note", "/mnt/skills/note"])
          expect(await sandbox.files.readText(path)).toBe("from the host");
        for (const place of ["/mnt/extra/writable", "/mnt/skills/writable", "/usr/share", "/etc", "/", "/mnt"]) {
          const { stderr } = await sandbox.exec(`touch ${place}/planted`, { cwd: "/tmp" });
          expect(stderr, place).toMatch(
            place === "/mnt" && key === null ? /Permission denied/ : /Read-only file system/,
          );
        }
        await stage.rejects(sandbox.files.write("/mnt/skills/writable/planted", "x"), "read_only_path");
        for (const path of ["/new", "/usr/new/deep", "/mnt/skills/new"])
          await stage.rejects(sandbox.files.mkdir(path), "read_only_path");
        await stage.destroy(made, backend);
      }
    }));

  it("can be written where the blueprint says so", () =>
    onStage(async (stage) => {
      const { directory } = place();
      chmodSync(directory, 0o777);
      const mounts = [{ hostPath: directory, sandboxPath: "/data", readOnly: false }];
      const { target } = await stage.make(stage.newKey(), { blueprint: { ...blueprint, mounts } });
      const { sandbox } = await stage.attach(target);
      await sandbox.files.write("/data/result", "made inside");
      expect((await sandbox.exec("cat /data/result")).stdout).toBe("made inside");
    }));

  it("in another one is found at its own path, in a thread's sandbox and in a blank", () =>
    onStage(async (stage) => {
      const [{ directory }, inside] = [place(), place()];
      mkdirSync(join(directory, "a spot/deep"), { recursive: true });
      writeFileSync(join(inside.directory, "note"), "from the host");
      const mounts = [
        { hostPath: inside.directory, sandboxPath: "/mnt/extra/a spot/deep", readOnly: true },
        { hostPath: directory, sandboxPath: "/mnt/extra", readOnly: true },
      ];
      for (const key of isRoot ? [stage.newKey(), null] : [stage.newKey()]) {
        const made = await stage.make(key, { blueprint: { ...blueprint, mounts } });
        const { sandbox } = await stage.attach(made.target);
        expect(await sandbox.files.readText("/mnt/extra/a spot/deep/note")).toBe("from the host");
        await stage.destroy(made);
      }
    }));

  it("that a link carried elsewhere after all is noticed", () => {
    const own = { from: "/", to: "/", readOnly: true };
    const proc = { from: "/proc", to: "/proc", readOnly: true };
    expect(findMisplaced([own, proc], process.pid)).toBeUndefined();
    expect(findMisplaced([proc, { ...proc, to: "/proc/nowhere" }], process.pid)?.to).toBe("/proc/nowhere");
    // Neither inside the other, so a lookup cannot have ended anywhere else.
    expect(findMisplaced([{ ...proc, to: "/nowhere" }], process.pid)).toBeUndefined();
  });

  it("whose place becomes a link between the check and the mount does not come up, and leaves nothing behind", () =>
    onStage(async (stage, harness) => {
      const { directory } = place();
      const spot = join(directory, "spot");
      mkdirSync(spot);
      chmodSync(directory, 0o777);
      const bubblewrapPath = join(directory, "bwrap");
      const swap = `/bin/rmdir ${spot} && /bin/ln -s ../mnt/user-data ${spot}`;
      const script = `#!/bin/sh\ncase "$*" in *${spot}*|*/data/spot*) ${swap};; esac\nexec bwrap "$@"\n`;
      writeFileSync(bubblewrapPath, script, { mode: 0o755 });
      const backend = await harness.open({}, { bubblewrapPath });
      const mounts = [
        { hostPath: directory, sandboxPath: "/data", readOnly: true },
        { hostPath: place().directory, sandboxPath: "/data/spot", readOnly: true },
      ];
      const failed = await stage.make(stage.newKey(), { blueprint: { ...blueprint, mounts } }, backend).then(
        () => null,
        (error: unknown) => error,
      );
      expect(failed).toMatchObject({ code: "mount_refused" });
      expect(String(failed)).toContain("was not mounted at its place");
    }));

  it("that is refused leaves nothing behind", () =>
    onStage(async (stage) => {
      const mounts = [{ hostPath: "/no/such/directory", sandboxPath: "/data", readOnly: true }];
      await stage.rejects(stage.make(stage.newKey(), { blueprint: { ...blueprint, mounts } }), "mount_refused");
    }));
});

/** Why a mount is refused; `null` when it is accepted. */
function refusal(hostPath: string, sandboxPath: string, root = tmpdir()): string | null {
  return problemOf(() => checkMounts([{ hostPath, sandboxPath, readOnly: true }], null, root));
}

function problemOf(check: () => unknown): string | null {
  try {
    check();
    return null;
  } catch (error) {
    if (isSandlotError(error, "mount_refused")) return error.details.problem;
    throw error;
  }
}

function place(): { directory: string } {
  const directory = mkdtempSync(join(tmpdir(), "sl-local-mount-"));
  chmodSync(directory, 0o755);
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return { directory };
}
