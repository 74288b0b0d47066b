/**
 * Project quotas: whether they are recognised, and what would be run. The kernel here is built without quota formats, so
 * that they hold has not been measured.
 */

import { statSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { describeDisk, findProjectQuotas, type ProjectQuotas } from "../../../../src/backends/local/limits/index.ts";

const DIRECTORY = import.meta.dirname;
const mountInfo = (type: string, options: string) =>
  [`1 0 8:1 / / rw - ext4 /dev/a rw`, `2 1 8:2 / ${DIRECTORY} rw,noatime - ${type} /dev/b rw,${options}`].join("\n");
const options = {
  isRoot: true,
  findProgram: (name: string) => `/sbin/${name}`,
  mountInfo: mountInfo("ext4", "prjquota"),
};

describe("project quotas", () => {
  it("sets a budget for the directory's own project", async () => {
    const ran: string[] = [];
    const run = async (file: string, args: readonly string[]) => ran.push([file, ...args].join(" "));
    const quotas = findProjectQuotas(DIRECTORY, { ...options, run }) as ProjectQuotas;
    await quotas.limit(DIRECTORY, { maxBytes: 10_000, maxFiles: 50 });
    const { ino } = statSync(DIRECTORY);
    expect(ran).toEqual([
      `/sbin/setquota -P ${ino} 0 10 0 50 ${DIRECTORY}`,
      `/sbin/chattr -R +P -p ${ino} ${DIRECTORY}`,
    ]);
    // Told as it is, not as it could be.
    expect(describeDisk(DIRECTORY, options)).toMatchObject({
      by: "watcher",
      says: expect.stringContaining("not used"),
    });
  });

  it.each<[string, Parameters<typeof findProjectQuotas>[1]]>([
    ["tmpfs has no project quotas", { ...options, mountInfo: mountInfo("tmpfs", "size=1k") }],
    ["without the option prjquota", { ...options, mountInfo: mountInfo("xfs", "usrquota") }],
    ["only root", { ...options, isRoot: false }],
    ["not both installed", { ...options, findProgram: (name) => (name === "chattr" ? "/bin/chattr" : null) }],
  ])("says why there are none: %s", (reason, given) => {
    expect(findProjectQuotas(DIRECTORY, given)).toContain(reason);
    expect(describeDisk(DIRECTORY, given)).toMatchObject({ by: "watcher", measured: true });
  });

  it("looks at the mount nearest to the directory", () => {
    const outer = { ...options, mountInfo: mountInfo("ext4", "prjquota") };
    expect(findProjectQuotas("/", outer)).toContain("without the option");
    expect(typeof findProjectQuotas(`${DIRECTORY}/deeper`, outer)).toBe("object");
    expect(findProjectQuotas(`${DIRECTORY}-beside`, outer)).toContain("without the option");
  });
});
