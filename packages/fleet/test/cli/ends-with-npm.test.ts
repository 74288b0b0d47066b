/**
 * What `npm start` runs, when npm is ended: npm hands its signal to a shell, and shells hand on none.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, it, onTestFinished } from "vitest";

const RUNTIME = new URL("../../../../scripts/runtime.mjs", import.meta.url).href;
const script = (endWithParent: boolean) => `
  import { run } from ${JSON.stringify(RUNTIME)};
  const onStart = (pid) => console.log(pid);
  await run("sleep", ["60"], { endWithParent: ${endWithParent}, onStart });
`;

it.each([true, false])("a shell's end ends what runs below it: %s", { timeout: 30_000 }, async (endWithParent) => {
  const inner = `"${process.execPath}" --input-type=module -e "$SCRIPT"; true`;
  const shell = spawn("sh", ["-c", inner], {
    env: { ...process.env, SCRIPT: script(endWithParent) },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(shell.stdout, "data")) as [Buffer];
  const pid = Number(line.toString());
  onTestFinished(() => {
    if (runs(pid)) process.kill(pid, "SIGKILL");
  });
  shell.kill("SIGKILL");
  if (endWithParent) await expect.poll(() => runs(pid)).toBe(false);
  else {
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(runs(pid)).toBe(true);
  }
});

function runs(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
