/**
 * Programs that a sandbox has planted in its home, under the names of everything that the daemon or the host may run
 * for itself. Each notes that it ran, so a test can tell whether one did.
 */

import { KEPT_HOME } from "@sandlot/contract";
import { expect } from "vitest";
import type { BackendStage, Key, Made } from "../../src/testing/backend-suite/stage.ts";

const NAMES = (
  "sh bash dash tar gzip node nodejs python python3 rg grep find ps kill pkill mkfifo setsid setpriv prlimit cat ls ln " +
  "rm mv cp stat head tail test true env readlink realpath chmod chown mkdir touch base64 sleep date id uname git npm " +
  "sandboxd sandboxd-runtime bwrap nsenter unshare mount getent printf echo pwd"
).split(" ");
const FOLDERS = [".local/bin", ".cargo/bin", "go/bin"];
const NOTES = `${KEPT_HOME}/ran`;

/** Plants them, and shows that a command of the sandbox does run them: otherwise nothing would be tested. */
export async function plant(stage: BackendStage, key: Key): Promise<void> {
  const made = await stage.make(key);
  const { sandbox } = await stage.attach(made.target);
  const planted = `#!/bin/sh\necho "$0 $*" >> ${NOTES}\n`;
  for (const folder of FOLDERS)
    for (const name of NAMES) await sandbox.files.write(`${KEPT_HOME}/${folder}/${name}`, planted, { mode: 0o755 });
  // A module that Node finds below the home of a process.
  await sandbox.files.write(
    `${KEPT_HOME}/.node_modules/koffi/index.js`,
    `require("fs").writeFileSync("${NOTES}", "koffi")`,
  );
  expect((await sandbox.exec(["rg", "x"])).exitCode).toBe(0);
  expect((await sandbox.exec("ps x")).exitCode).toBe(0);
  const ran = (await sandbox.files.readText(NOTES)).trim().split("\n");
  expect(ran).toEqual(["rg", "ps"].map((name) => `${KEPT_HOME}/.local/bin/${name} x`));
  await sandbox.files.remove(NOTES);
  await stage.destroy(made);
}

/** Makes daemon and host use all of their own programs, in a sandbox that starts with the planted ones. */
export async function useEverything(stage: BackendStage, made: Made): Promise<void> {
  const attachment = await stage.attach(made.target);
  const { sandbox } = attachment;
  const { files } = sandbox;
  await files.write("/mnt/user-data/workspace/a.txt", "needle\n");
  await files.append("/mnt/user-data/workspace/a.txt", "more\n");
  expect((await files.grep("/mnt/user-data/workspace", "needle")).matches).toHaveLength(1);
  expect((await files.grep("/mnt/user-data/workspace", "need(?=le)")).matches).toHaveLength(1);
  expect((await files.glob("/mnt/user-data/workspace", "*.txt")).paths).toHaveLength(1);
  await files.list("/mnt/user-data/workspace", { depth: 3 });
  await files.rename("/mnt/user-data/workspace/a.txt", "/mnt/user-data/workspace/b.txt");
  await files.remove("/mnt/user-data/workspace/b.txt");
  const watched = files.watch("/mnt/user-data/workspace")[Symbol.asyncIterator]();
  await watched.next();
  await watched.return?.();
  await Promise.all(Array.from({ length: 8 }, () => sandbox.exec(":", { stdin: "x" })));
  const { execId } = await sandbox.spawn(":", { keepStdinOpen: true });
  await sandbox.execs.kill(execId);
  const { sessionId } = await sandbox.sessions.open();
  await sandbox.sessions.exec(sessionId, "cd /tmp; x=1");
  await sandbox.sessions.close(sessionId);
  const terminal = await sandbox.terminals.open({ columns: 80, rows: 24, command: ["/bin/sh", "-c", ":"] });
  await terminal.ended;
  await terminal.detach();
  await sandbox.ports.list();
  await sandbox.processes();
  await sandbox.usage();
  await stage.backend.activity(made.target.ref, stage.signal);
}

/** The planted programs that ran. */
export async function ranPlanted(stage: BackendStage, made: Made): Promise<string> {
  const { files } = (await stage.attach(made.target)).sandbox;
  return files.readText(NOTES).catch(() => "");
}
