/** The next start removes the half-written record of a container whose writer was killed, and no earlier step does. */

import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FleetId } from "@sandlot/contract";
import { expect, it, onTestFinished } from "vitest";
import { ContainerObjects, dockerLayout } from "../../../src/backends/docker/objects/container-objects.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import type { ProcessIdentity } from "../../../src/world/world.ts";

const world = systemWorld();
/** No process has this pid. */
const DEAD = { ...world.identity, pid: 4_194_303, startTime: "1" };

it("removes the drafts of dead processes at once, and those of others when they are old", async () => {
  const home = mkdtempSync(join(tmpdir(), "sl-containers-"));
  onTestFinished(() => rmSync(home, { recursive: true, force: true }));
  const layout = dockerLayout(home, "fleet" as FleetId, home);
  const draft = (name: string, { pid, startTime, pidNamespace, bootId }: ProcessIdentity) => {
    const file = `${name}-1.json.${[pid, startTime, pidNamespace, bootId].join(".")}~`;
    writeFileSync(join(layout.objects, file), "");
    return file;
  };
  const old = (file: string) => {
    utimesSync(join(layout.objects, file), 1, 1);
    return file;
  };
  const kept = [draft("ours", world.identity), draft("elsewhere", { ...DEAD, pidNamespace: "pid:[1]" })];
  const later = { ...world.identity, startTime: "1" };
  for (const [name, writer] of [
    ["dead", DEAD],
    ["again", later],
  ] as const)
    draft(name, writer);
  old(draft("elsewhere-old", { ...DEAD, bootId: "another" }));
  writeFileSync(join(layout.objects, "released-1.json.17~"), "");
  writeFileSync(join(layout.objects, "released-old-1.json.17~"), "");
  old("released-old-1.json.17~");
  await new ContainerObjects(layout, world).sweep(Date.now());
  expect(readdirSync(layout.objects).sort()).toEqual([...kept, "released-1.json.17~"].sort());
});
