/** A mount of a volume in this process, for its trial. */

import { constants } from "node:fs";
import { mkdir, open, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { isMissing } from "../../../../world/disk-trouble.ts";
import type { VolumePlace } from "../volume-trial.ts";
import { isTaken, statOrNull } from "./fresh-names.ts";

export type PlaceMethod = Exclude<keyof VolumePlace, "name" | "uid">;
export interface PlaceCall {
  readonly method: PlaceMethod;
  readonly args: readonly string[];
}

export function localPlace(root: string): VolumePlace {
  const at = (path: string) => join(root, path);
  return {
    name: "gateway",
    uid: process.getuid?.() ?? 0,
    makeDirectory: (path) => mkdir(at(path)),
    async write(path, content) {
      const file = await open(at(path), constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY, 0o600);
      try {
        await file.writeFile(content);
      } finally {
        await file.close();
      }
    },
    read: (path) =>
      readFile(at(path), "utf8").catch((error: unknown) => {
        if (isMissing(error)) return null;
        throw error;
      }),
    async stat(path) {
      const stats = await statOrNull(at(path));
      return stats === null ? null : { inode: stats.ino.toString(), uid: Number(stats.uid) };
    },
    async rename(from, to) {
      try {
        await rename(at(from), at(to));
        return "done";
      } catch (error) {
        if (isTaken(error)) return "refused";
        throw error;
      }
    },
    removeTree: (path) => rm(at(path), { recursive: true, force: true }),
  };
}

export function runPlaceCall(place: VolumePlace, { method, args }: PlaceCall): Promise<unknown> {
  const work = place[method] as (...args: readonly string[]) => Promise<unknown>;
  return work(...args);
}
