/** The trial of a shared volume: passes on a directory that two places share, and names what a broken one lacks. */

import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { afterAll, expect, it } from "vitest";
import { localPlace } from "../../../../src/backends/kubernetes/workspaces/volume/local-place.ts";
import {
  shellPlace,
  tryVolume,
  type VolumePlace,
  verdictOf,
} from "../../../../src/backends/kubernetes/workspaces/volume-trial.ts";
import { VolumeGround, world } from "./volume-ground.ts";

const ground = new VolumeGround();
afterAll(() => ground.dispose());
const uid = process.getuid?.() ?? 0;
const here = localPlace(ground.root);
const shell = (command: string) =>
  new Promise<{ exitCode: number; stdout: string; stderr: string }>((resolve) => {
    execFile("/bin/sh", ["-c", command], (error, stdout, stderr) =>
      resolve({ exitCode: error === null ? 0 : Number(error.code ?? 1), stdout, stderr }),
    );
  });
const pod = shellPlace("pod", uid, ground.root, shell);

async function failedSteps(one: VolumePlace, two: VolumePlace): Promise<readonly string[]> {
  return (await tryVolume(one, two, world)).filter(({ passed }) => !passed).map(({ step }) => step);
}

it.each([
  ["a gateway and a pod", here, pod],
  ["a pod and a gateway", pod, here],
])("passes for %s, and leaves nothing", async (_, one, two) => {
  const steps = await tryVolume(one, two, world);
  expect(steps.map(({ step, passed }) => [step, passed])).toEqual(
    ["uid", "rename", "visibility", "full-directory", "inodes"].map((step) => [step, true]),
  );
  expect(verdictOf(steps)).toEqual({ usable: true, lateBinding: true, reasons: [] });
  expect(readdirSync(ground.root)).toEqual([]);
});

it("without visibility only late binding is off, and the reason says what to do", async () => {
  const blind = { ...pod, read: async () => null };
  const steps = await tryVolume(here, blind, world);
  const verdict = verdictOf(steps);
  expect(verdict).toMatchObject({ usable: true, lateBinding: false });
  expect(verdict.reasons).toEqual([expect.stringContaining("lookupcache=positive")]);
});

it("a volume that replaces full directories, changes inodes or accounts is not used", async () => {
  const replacing: VolumePlace = {
    ...pod,
    async rename(from, to) {
      await shell(`rm -rf '${ground.root}/${to}'; mv -T '${ground.root}/${from}' '${ground.root}/${to}'`);
      return "done";
    },
  };
  expect(await failedSteps(here, replacing)).toEqual(["full-directory"]);
  let count = 0;
  const shifting = { ...pod, stat: async () => ({ inode: String(++count), uid }) };
  expect(await failedSteps(here, shifting)).toEqual(["inodes"]);
  expect(await failedSteps(here, { ...pod, uid: uid + 1 })).toEqual(["uid"]);
  const silent = { ...pod, write: () => Promise.reject(new Error("no answer")) };
  const steps = await tryVolume(here, silent, world);
  expect(steps.find(({ step }) => step === "uid")?.because).toContain("no answer");
  expect(verdictOf(steps)).toMatchObject({ usable: false });
  expect(readdirSync(ground.root)).toEqual([]);
});
