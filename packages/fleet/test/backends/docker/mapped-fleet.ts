/**
 * A fleet that sees its directories by other paths than its engine does, as one in a container of the engine: run in
 * its own mount namespace. Creates a thread's sandbox and a blank, uses both, and prints the results.
 *
 *   node --conditions=sandlot-source mapped-fleet.ts '<settings>' '<installation>' '<blueprint>'
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { openDockerBackend } from "../../../src/backends/docker/backend.ts";
import { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const [settings, installation, blueprint] = process.argv.slice(2).map((text) => JSON.parse(text));
const backend = await openDockerBackend({ settings, installation, world: systemWorld() });
const harness = {
  fleetId: settings.fleetId,
  backend,
  peer: async () => backend,
  stranger: () => Promise.reject(new Error("there is none")),
  kill: () => Promise.reject(new Error("nobody is killed")),
  dispose: async () => {},
};
const unused = (() => {
  throw new Error("nothing is expected here");
}) as never;
const stage = new BackendStage(harness, blueprint, unused);
try {
  const key = stage.newKey();
  const made = await stage.make(key);
  const { sandbox } = await stage.attach(made.target);
  await sandbox.exec(
    "echo written inside > /mnt/user-data/workspace/note; cat /mnt/data/file > /mnt/user-data/outputs/seen",
  );
  const home = join(settings.home, settings.fleetId, "homes", threadKeyOf(key.user, key.thread), "user-data");
  const note = readFileSync(join(home, "workspace/note"), "utf8");
  const seen = readFileSync(join(home, "outputs/seen"), "utf8");
  const outside = { ...blueprint, mounts: [{ hostPath: "/etc/ssl", sandboxPath: "/mnt/data", readOnly: true }] };
  const refused = await stage
    .make(stage.newKey(), { blueprint: outside })
    .catch((error: { code?: string }) => error.code);
  const blank = await stage.make(null);
  const { stdout } = await (await stage.attach(blank.target)).sandbox.exec("echo blank", { cwd: "/" });
  const containers = [made, blank].map(({ created }) => created.ref.split("/")[0]);
  process.stdout.write(`${JSON.stringify({ note, seen, refused, stdout, containers })}\n`);
  // The reader of the line inspects the containers, and then lets this process go on.
  await new Promise((resolve) => process.stdin.once("data", resolve));
} finally {
  await stage.clear();
  await backend.close();
}
process.exit(0);
