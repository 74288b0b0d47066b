/**
 * What may be mounted where, and what a mount means inside.
 */

import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { checkMounts } from "../../../src/backends/local/mounts.ts";
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
    ["mnt/extra", "must be absolute"],
  ])("at %s is refused", (sandboxPath, problem) => {
    expect(refusal("/usr/share", sandboxPath)).toContain(problem);
  });

  it.each(["/mnt/extra", "/data", "/mnt/user-data-2", "/opt/tool", "/home/sandbox/.cache", "/mnt/extra/deep/"])(
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
      // Without late binding there are no blanks: an ordinary user's could write in its own slot.
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

  it("that is refused leaves nothing behind", () =>
    onStage(async (stage) => {
      const mounts = [{ hostPath: "/no/such/directory", sandboxPath: "/data", readOnly: true }];
      await stage.rejects(stage.make(stage.newKey(), { blueprint: { ...blueprint, mounts } }), "mount_refused");
    }));
});

/** Why a mount is refused; `null` when it is taken. */
function refusal(hostPath: string, sandboxPath: string, root = tmpdir()): string | null {
  try {
    checkMounts([{ hostPath, sandboxPath, readOnly: true }], null, root);
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
