/** An image with its own server: the test image, the stand-in, and a Node that runs it. Built once per test file. */

import { spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { makeRuntimeDirectory } from "../../../src/host/runtime/runtime-directory.ts";
import { STAND_IN } from "../../compat/aio/start-stand-in.ts";
import { daemonFiles, type TestEngine } from "./docker-harness.ts";
import { removed } from "./using-engine.ts";

export interface AioImage {
  readonly name: string;
  remove(): Promise<void>;
}

const PLACE = "/opt/stand-in";
const ENTRYPOINT = [
  ...[`${PLACE}/loader`, "--library-path", `${PLACE}/lib`, `${PLACE}/node`],
  ...[`${PLACE}/server.mjs`, "--host", "0.0.0.0", "--port", "8080"],
];

/** `environment` is the image's own. */
export async function makeAioImage(
  { docker, image }: TestEngine,
  environment: Readonly<Record<string, string>> = {},
): Promise<AioImage> {
  const name = `sandlot-test-aio-${process.pid}-${++serial}:1`;
  const directory = mkdtempSync(join(tmpdir(), "sl-aio-image-"));
  const container = await docker.createContainer({ Image: image, Cmd: ["true"] });
  try {
    await fill(join(directory, PLACE));
    const { stdout } = spawnSync("tar", ["-C", directory, "-c", "opt"], { maxBuffer: 1024 ** 3 });
    await container.putArchive(stdout, { path: "/" });
    const [repo, tag] = name.split(":");
    const variables = Object.entries(environment).map(([key, value]) => `ENV ${key}=${value}`);
    const changes = [`ENTRYPOINT ${JSON.stringify(ENTRYPOINT)}`, "CMD []", ...variables];
    await container.commit({ repo, tag, changes: changes.join("\n") });
  } finally {
    await container.remove({ force: true });
    rmSync(directory, { recursive: true, force: true });
  }
  return { name, remove: () => removed(() => docker.getImage(name).remove({ force: true })) };
}

let serial = 0;

async function fill(place: string): Promise<void> {
  const daemon = await daemonFiles();
  const runtime = await makeRuntimeDirectory(dirname(daemon.bundle), process.execPath, daemon, true);
  cpSync(runtime.path, place, { recursive: true });
  copyFileSync(process.execPath, join(place, "node"));
  chmodSync(join(place, "node"), 0o755);
  copyFileSync(STAND_IN, join(place, "server.mjs"));
}
