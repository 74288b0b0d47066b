/**
 * The smallest backend for workspaces on a disk: its sandboxes are directories and a shell, without isolation. It
 * exists so that the cases of the backend suite about workspaces run against the disk alone.
 */

import { execFile } from "node:child_process";
import { mkdirSync, statSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import {
  type EngineRef,
  type FleetId,
  type Generation,
  type Sandbox,
  type SandboxId,
  SandlotError,
} from "@sandlot/contract";
import type {
  Attachment,
  Backend,
  CreateSpec,
  EngineObject,
  Place,
  Target,
  Workspaces,
} from "../../../src/backend/backend.ts";
import type { DiskWorkspaces } from "../../../src/host/workspaces/disk-workspaces.ts";
import { isMissing } from "../../../src/world/disk-trouble.ts";
import { world } from "./ground.ts";

interface FakeObject {
  readonly ref: EngineRef;
  readonly labels: CreateSpec["labels"];
  readonly place: Place;
  readonly userData: string;
  readonly privateDirectory: string;
  credentials: { generation: number; token: string };
  alive: boolean;
  removed: boolean;
}

/** The state that outlives every process: the objects of all fleets. */
export type FakeEngine = Map<EngineRef, FakeObject>;

/** Workspaces as directories that this machine reaches by a path. */
export type DirectoryWorkspaces = Workspaces &
  Pick<DiskWorkspaces, "markers" | "prepareHome" | "dropMarkers" | "dropSlot"> & {
    prepareSlot(sandboxId: SandboxId, generation: Generation): ReturnType<DiskWorkspaces["prepareSlot"]>;
    slots(): Promise<readonly { readonly place: Place }[]>;
    close(): void | Promise<void>;
  };

export function createDiskBackend(
  engine: FakeEngine,
  fleetId: FleetId,
  workspaces: DirectoryWorkspaces,
  scratch: string,
): Backend {
  const mine = async (): Promise<EngineObject[]> => {
    const slots = new Set((await workspaces.slots()).map(({ place }) => place as Place));
    return [...engine.values()]
      .filter(({ labels, removed, place }) => labels.fleet === fleetId && (!removed || slots.has(place)))
      .map(({ ref, labels, alive, place }) => ({ ref, labels, place, liveness: alive ? "alive" : "dead" }));
  };
  const reach = (target: Target, anyGeneration = false): FakeObject => {
    const { sandboxId, generation, token } = target;
    const object = engine.get(target.ref);
    if (object === undefined || !object.alive)
      throw new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" });
    const { credentials } = object;
    if (!anyGeneration && (credentials.generation !== generation || credentials.token !== token))
      throw new SandlotError("stale_generation", { sandboxId, generation, current: credentials.generation });
    return object;
  };
  return {
    name: "disk",
    engineId: "disk",
    capabilities: new Set(["late-binding"]),
    workspaces,
    markers: workspaces.markers,
    async create({ labels, marker, generation, token }) {
      const ref = world.randomHex(8) as EngineRef;
      const privateDirectory = join(scratch, ref);
      mkdirSync(privateDirectory, { recursive: true });
      const made = marker === null ? await blank(workspaces, labels) : await home(workspaces, marker);
      const { place, workspace, userData } = made;
      const credentials = { generation, token };
      engine.set(ref, { ref, labels, place, userData, privateDirectory, credentials, alive: true, removed: false });
      return { ref, place, workspace };
    },
    async attach(target): Promise<Attachment> {
      const { userData, privateDirectory } = reach(target);
      const sandbox = sandboxAt(target, userData, privateDirectory);
      return { sandbox, closed: new Promise(() => {}), close: async () => {} };
    },
    async rebind(target) {
      reach(target, true).credentials = { generation: target.generation, token: target.token };
    },
    probe: async (ref) => (engine.get(ref)?.alive === true ? "alive" : "dead"),
    async destroy(ref) {
      const object = engine.get(ref);
      if (object === undefined) return;
      object.alive = false;
      object.removed = true;
      if (object.place === "home") await workspaces.dropMarkers(object.labels.sandboxId);
      else await workspaces.dropSlot(object.place);
    },
    list: mine,
    watch: () => () => {},
    activity: async () => ({ runningExecs: 0, openTerminals: 0, previewTrafficAt: null, cpuShare: 0 }),
    close: async () => workspaces.close(),
  };
}

async function home(workspaces: DirectoryWorkspaces, marker: NonNullable<CreateSpec["marker"]>) {
  const { userDataPath, existing } = await workspaces.prepareHome(marker);
  return { place: "home", workspace: existing ? "existing" : "new", userData: userDataPath } as const;
}

async function blank(workspaces: DirectoryWorkspaces, { sandboxId, generation }: CreateSpec["labels"]) {
  const { place, mntPath } = await workspaces.prepareSlot(sandboxId, generation);
  return { place, workspace: "none", userData: join(mntPath, "user-data") } as const;
}

/** The few calls that the cases about workspaces make. */
function sandboxAt({ sandboxId, generation }: Target, userData: string, privateDirectory: string): Sandbox {
  const onHost = (text: string) =>
    text.replaceAll(/\/mnt\/user-data|\/tmp(?=\/)/g, (start) => (start === "/tmp" ? privateDirectory : userData));
  const inWords = (path: string) => (error: unknown) => {
    throw isMissing(error) ? new SandlotError("file_not_found", { path }) : error;
  };
  const exec = (command: string) =>
    new Promise((resolve) => {
      execFile("/bin/sh", ["-c", onHost(command)], { cwd: join(userData, "workspace") }, (error, stdout, stderr) =>
        resolve({ stdout, stderr, exitCode: error === null ? 0 : error.code }),
      );
    });
  const files = {
    readText: (path: string) => readFile(onHost(path), "utf8").catch(inWords(path)),
    write: (path: string, content: string) => writeFile(onHost(path), content).catch(inWords(path)),
    stat: async (path: string) => {
      try {
        const stats = statSync(onHost(path));
        return { kind: stats.isDirectory() ? "directory" : "file", mode: stats.mode & 0o7777 };
      } catch (error) {
        return inWords(path)(error);
      }
    },
  };
  return { id: sandboxId, generation, exec, files } as unknown as Sandbox;
}
