/** The processes of `npm start` when npm is ended: npm passes its signal to a shell, and shells pass on none. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, it, onTestFinished } from "vitest";

const RUNTIME = new URL("../../../../scripts/runtime.mjs", import.meta.url).href;
const script = (endWithParent: boolean, first = "") => `
  import { run } from ${JSON.stringify(RUNTIME)};
  ${first}
  const onStart = (pid) => console.log(pid);
  await run("sleep", ["60"], { endWithParent: ${endWithParent}, onStart });
`;

/** Ends the shell in the moment in which `run` starts a process. */
const ORPHANED_BY_SPAWN = `
  import childProcess from "node:child_process";
  import { syncBuiltinESMExports } from "node:module";
  const [{ spawn }, parent] = [childProcess, process.ppid];
  childProcess.spawn = (...args) => {
    process.kill(parent, "SIGKILL");
    while (process.ppid === parent);
    return spawn(...args);
  };
  syncBuiltinESMExports();
`;

it.each([true, false])("a shell's end ends what runs below it: %s", async (endWithParent) => {
  const { shell, pid } = await started(script(endWithParent));
  shell.kill("SIGKILL");
  if (endWithParent) await expect.poll(() => runs(pid)).toBe(false);
  else {
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(runs(pid)).toBe(true);
  }
});

it("a shell's end is noticed when it comes before what runs below it", async () => {
  const { pid } = await started(script(true, ORPHANED_BY_SPAWN));
  await expect.poll(() => runs(pid)).toBe(false);
});

async function started(text: string) {
  const inner = `"${process.execPath}" --input-type=module -e "$SCRIPT"; true`;
  const shell = spawn("sh", ["-c", inner], {
    env: { ...process.env, SCRIPT: text },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(shell.stdout, "data")) as [Buffer];
  const pid = Number(line.toString());
  onTestFinished(() => {
    if (runs(pid)) process.kill(pid, "SIGKILL");
  });
  return { shell, pid };
}

function runs(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
