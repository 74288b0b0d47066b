/** The doctor's findings about the separation of sandboxes, daemons and other accounts. */

import { expect, it } from "vitest";
import { closedDaemonFinding, processListFinding, remapFinding } from "../../src/backend/doctor/isolation-findings.ts";
import { closingProblemWith } from "../../src/backends/docker/container/isolation.ts";
import { closingProblem } from "../../src/host/runtime/runtime-directory.ts";

const mounts = (options: string) => `sysfs /sys sysfs ro 0 0\nproc /proc proc ${options} 0 0\n`;

it("warns when other accounts can read command lines", () => {
  expect(processListFinding(mounts("rw,nosuid"))).toMatchObject({
    status: "warn",
    fix: expect.stringContaining("hidepid=2"),
  });
  expect(processListFinding(mounts("rw,hidepid=off"))).toMatchObject({ status: "warn" });
  expect(processListFinding(mounts("rw,hidepid=invisible"))).toMatchObject({ status: "ok" });
  expect(processListFinding(mounts("rw,gid=4,hidepid=2"))).toMatchObject({ status: "ok" });
});

it("says whether the daemon is closed to commands, and why not", () => {
  expect(closedDaemonFinding(null)).toMatchObject({ status: "ok" });
  expect(closedDaemonFinding("a reason")).toMatchObject({
    status: "warn",
    detail: expect.stringContaining("a reason"),
  });
  const docker = { runtime: null, capabilities: [] };
  expect(closingProblemWith(docker, { defaultRuntime: "runc" })).toBe(closingProblem());
  expect(closingProblemWith({ ...docker, runtime: "runsc" }, { defaultRuntime: "runc" })).toContain("runsc");
  expect(closingProblemWith({ ...docker, capabilities: ["SYS_PTRACE"] }, { defaultRuntime: "runc" })).toContain(
    "SYS_PTRACE",
  );
});

it("warns of an engine whose user mapping sandboxes leave", () => {
  expect(remapFinding(false)).toEqual([]);
  expect(remapFinding(true)).toMatchObject([{ status: "warn", detail: expect.stringContaining("userns-remap") }]);
});
