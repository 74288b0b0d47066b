/** A disk with room for few files, to test a full disk. */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import { Ground } from "./ground.ts";

/**
 * Needs root. `fill` leaves no room; removing the files `0`, `1`, … of the returned directory gives room for one each.
 */
export async function onSmallDisk(work: (ground: Ground, fill: () => string) => Promise<void>): Promise<void> {
  const root = mkdtempSync(join(tmpdir(), "sandlot-disk-"));
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=1m,nr_inodes=200", "sandlot-test", root]);
  const ground = new Ground(root);
  const fill = () => {
    const filler = join(root, "filler");
    mkdirSync(filler);
    const write = () => {
      for (let number = 0; ; number++) writeFileSync(join(filler, String(number)), "", { flag: "wx" });
    };
    expect(write).toThrow("ENOSPC");
    return filler;
  };
  try {
    await work(ground, fill);
  } finally {
    ground.dispose();
    execFileSync("umount", [root]);
    rmSync(root, { recursive: true });
  }
}
