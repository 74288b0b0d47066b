/**
 * Runtime directories of containers: a container is recorded as a user of the one it mounts, and an unused one goes.
 */

import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { filesBeside, type SandboxdFiles } from "@sandlot/sandboxd";
import { expect, it, onTestFinished } from "vitest";
import type { EngineEvent } from "../../../src/backend/backend.ts";
import { type DockerHarness, daemonFiles } from "./docker-harness.ts";
import { describeOnEngine } from "./on-engine.ts";

/** The same daemon in another place, as another release would be. */
async function otherRelease(): Promise<SandboxdFiles> {
  const { bundle } = await daemonFiles();
  const directory = mkdtempSync(join(tmpdir(), "sl-other-release-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  cpSync(dirname(bundle), directory, { recursive: true });
  return filesBeside(join(directory, basename(bundle)));
}

describeOnEngine("runtime directories of containers", (onEngine) => {
  const framesOf = ({ home, fleetId }: DockerHarness) => join(home, fleetId, "frames");
  const directories = (frames: string) => readdirSync(frames).filter((name) => /^runtime-[0-9a-f]+$/.test(name));
  const usersOf = (frames: string, name: string) => {
    const uses = join(frames, `${name}.uses`);
    return existsSync(uses) ? readdirSync(uses).map((use) => readlinkSync(join(uses, use))) : [];
  };
  const longAgo = (path: string) => utimesSync(path, 1, 1);

  it("stay while a container mounts them, and go with a sweep after it", () =>
    onEngine(async (stage, harness) => {
      const frames = framesOf(harness);
      const first = await harness.open({}, { runtimeDirectory: null });
      const made = await stage.make(stage.newKey(), {}, first);
      const [before = ""] = directories(frames);
      const users = usersOf(frames, before);
      expect(users.map((path) => basename(path).split("-")[0])).toEqual([made.target.sandboxId]);
      expect(users.every(existsSync)).toBe(true);

      longAgo(join(frames, before));
      const daemon = await otherRelease();
      const second = await harness.open({}, { runtimeDirectory: null, daemon });
      const later = await stage.make(stage.newKey(), {}, second);
      expect(directories(frames)).toHaveLength(2);
      const { sandbox } = await stage.attach(made.target, first);
      expect((await sandbox.exec("echo runs on")).stdout).toBe("runs on\n");

      await stage.destroy(made, first);
      expect(users.some(existsSync)).toBe(false);
      const third = await harness.open({}, { runtimeDirectory: null, daemon });
      const last = await stage.make(stage.newKey(), {}, third);
      expect(directories(frames)).not.toContain(before);
      expect(directories(frames)).toHaveLength(1);
      await stage.destroy(later, second);
      await stage.destroy(last, third);
    }));

  it("that cannot be removed are an event, and no container fails for it", () =>
    onEngine(async (stage, harness) => {
      const frames = framesOf(harness);
      mkdirSync(join(frames, "runtime-aa"), { recursive: true });
      // Its links are no directory, which stops every removal of a directory.
      writeFileSync(join(frames, "runtime-aa.uses"), "");
      const backend = await harness.open({}, { runtimeDirectory: null });
      const heard: EngineEvent[] = [];
      const stop = backend.watch((event) => heard.push(event));
      await stage.destroy(await stage.make(stage.newKey(), {}, backend), backend);
      stop();
      const troubles = heard.filter(({ type }) => type === "housekeeping-failed");
      const problem = expect.stringContaining("ENOTDIR");
      expect(troubles).toEqual([{ type: "housekeeping-failed", task: "runtime-directories", problem }]);
    }));
});
