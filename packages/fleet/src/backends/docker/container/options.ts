/**
 * The options of a container. Pure: all inputs are arguments.
 *
 * Invariants
 * - No capability and no way to gain one, never the host's root, the engine's system call filter, no file of the engine
 *   inside, and a read-only root.
 * - Only the workspace, mounts configured as writable, and file systems in memory with a size can be written.
 * - Command lines and labels hold no secret: every client of the engine can read them.
 * - The engine's log has a limit.
 */

import { TEMPORARY_HOME } from "@sandlot/contract";
import type Docker from "dockerode";
import type { Blueprint } from "../../../backend/blueprint.ts";
import { cpuShares, memoryFileSystemBytes } from "../../../host/limits/index.ts";
import { PROC_MASKED } from "../../../host/mounts/masked-proc.ts";
import type { Binding } from "../../../host/mounts/mounts.ts";
import type { ContainerRequest, EngineFacts, SocketRelay } from "../engine/engine.ts";
import type { DockerSettings } from "../settings.ts";
import { outsideBindings } from "./host-paths.ts";
import { firstCommand, INSIDE } from "./inside.ts";
import { DAEMON_PORT, mayReadPrograms, runtimeOf, type Transport } from "./transport.ts";

export interface ContainerShape {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly image: string;
  /** Names of the variables that the image sets. */
  readonly imageNames: readonly string[];
  readonly blueprint: Blueprint;
  /** Whether there is a home in memory. */
  readonly hasTemporaryHome: boolean;
  readonly bindings: readonly Binding[];
  /** Whether the daemon's Node is among the bindings. */
  readonly bringsNode: boolean;
  /** Whether the daemon announces itself in the container's output. */
  readonly says: boolean;
  readonly transport: Transport;
  /** The relay of the daemon's socket; `null` for an engine without relays. */
  readonly relay: SocketRelay | null;
  readonly settings: Pick<DockerSettings, "account" | "docker">;
  readonly facts: Pick<EngineFacts, "isRootless" | "remapsUsers" | "isPodman" | "ceilings" | "defaultRuntime">;
}

const MIB = 1024 * 1024;
const DAEMON_TEMPORARY_BYTES = 64 * MIB;
const SHARED_MEMORY_BYTES = 64 * MIB;
/** The kernel's order when memory is short: commands first, then the daemon, then processes of the host. */
const OOM_SCORE_ADJUSTMENT = 200;
const NANO = 1_000_000_000;
/** The paths that an engine masks by default, and others that reveal the host. */
const MASKED_PATHS = [
  ...PROC_MASKED.map((name) => `/proc/${name}`),
  ...["/sys/devices/virtual/powercap", "/sys/firmware"],
];

export function containerOptions(shape: ContainerShape): ContainerRequest {
  const { labels, blueprint, settings } = shape;
  const runtime = runtimeOf(blueprint, settings.docker);
  const readsPrograms = mayReadPrograms(runtime, shape.facts);
  const [shell = "", ...rest] = firstCommand(shape.bringsNode, shape.imageNames, { says: shape.says, readsPrograms });
  const publishing = publishingOf(shape);
  return {
    name: shape.name,
    Image: shape.image,
    Labels: { ...labels },
    Hostname: "sandbox",
    User: userOf(shape),
    WorkingDir: "/",
    Entrypoint: [shell],
    Cmd: rest,
    Env: [`TMPDIR=${INSIDE.temporary}`],
    Healthcheck: { Test: ["NONE"] },
    StopSignal: "SIGKILL",
    AttachStdin: false,
    AttachStdout: false,
    AttachStderr: false,
    OpenStdin: false,
    Tty: false,
    ...(shape.relay === null ? {} : { relay: shape.relay }),
    ...publishing.container,
    HostConfig: {
      NetworkMode: "none",
      ...publishing.host,
      ReadonlyRootfs: settings.docker.readOnlyRoot,
      CapDrop: ["ALL"],
      CapAdd: [...settings.docker.capabilities],
      SecurityOpt: ["no-new-privileges"],
      MaskedPaths: [...MASKED_PATHS],
      Privileged: false,
      Init: false,
      IpcMode: "private",
      ...({ CgroupnsMode: "private" } satisfies { CgroupnsMode: string }),
      ...(shape.facts.remapsUsers ? { UsernsMode: "host" } : {}),
      ...(runtime === null ? {} : { Runtime: runtime }),
      ...limitsOf(blueprint.limits, shape.facts.ceilings),
      Mounts: outsideBindings(shape.bindings, settings.docker.hostPaths).map(mountOf),
      Tmpfs: memoryFileSystems(shape),
      OomScoreAdj: OOM_SCORE_ADJUSTMENT,
      RestartPolicy: { Name: "no" },
      AutoRemove: false,
      LogConfig: { Type: "json-file", Config: { "max-size": "64k", "max-file": "1" } },
    },
  };
}

/**
 * The engine picks the port of its host. Without a port nothing is published, and there is no network of the engine.
 */
function publishingOf({ transport, settings }: ContainerShape) {
  const { network, publishBind } = settings.docker;
  if (transport === "socket" || network === null) return { container: {}, host: {} };
  const port = `${DAEMON_PORT}/tcp`;
  return {
    container: { ExposedPorts: { [port]: {} } },
    host: { NetworkMode: network, PortBindings: { [port]: [{ HostIp: publishBind, HostPort: "" }] } },
  };
}

/** In an engine that an ordinary user runs, its root is that user, and every other id is an unused id of the host. */
function userOf({ settings, facts }: ContainerShape): string {
  return facts.isRootless ? "0:0" : `${settings.account.uid}:${settings.account.gid}`;
}

function limitsOf(
  { memoryBytes, cpuCount, cpuWeight, pidsMax, diskBytes }: Blueprint["limits"],
  ceilings: EngineFacts["ceilings"],
): Docker.HostConfig {
  const named = Object.entries(ceilings ?? {}).map(([Name, most]: [string, number]) => ({
    Name,
    Soft: most,
    Hard: most,
  }));
  const files = diskBytes === undefined ? [] : [{ Name: "fsize", Soft: diskBytes, Hard: diskBytes }];
  return {
    ...(memoryBytes === undefined ? {} : { Memory: memoryBytes, MemorySwap: memoryBytes }),
    ...(cpuCount === undefined ? {} : { NanoCpus: Math.round(cpuCount * NANO) }),
    ...(cpuWeight === undefined ? {} : { CpuShares: cpuShares(cpuWeight) }),
    ...(pidsMax === undefined ? {} : { PidsLimit: pidsMax }),
    ShmSize: memoryFileSystemBytes(SHARED_MEMORY_BYTES, memoryBytes),
    Ulimits: [{ Name: "core", Soft: 0, Hard: 0 }, ...files, ...named],
  };
}

function memoryFileSystems({ settings, blueprint, facts, hasTemporaryHome }: ContainerShape): Record<string, string> {
  const { uid, gid } = facts.isRootless ? { uid: 0, gid: 0 } : settings.account;
  const { memoryBytes } = blueprint.limits;
  const size = (bytes: number) => `size=${memoryFileSystemBytes(bytes, memoryBytes)}`;
  // Podman would copy the image's files there, and takes no owner: there is only one account inside anyway.
  const flags = facts.isPodman ? "rw,exec,nosuid,nodev,notmpcopyup" : "rw,exec,nosuid,nodev";
  const own = facts.isPodman ? "mode=1777" : `uid=${uid},gid=${gid},mode=0700`;
  const { tmpBytes, homeBytes } = settings.docker;
  return {
    "/tmp": `${flags},mode=1777,${size(tmpBytes)}`,
    "/var/tmp": `${flags},mode=1777,${size(tmpBytes)}`,
    ...(hasTemporaryHome ? { [TEMPORARY_HOME]: `${flags},${own},${size(homeBytes)}` } : {}),
    [INSIDE.temporary]: `${flags},${own},${size(DAEMON_TEMPORARY_BYTES)}`,
  };
}

function mountOf({ from, to, readOnly }: Binding): Docker.MountSettings {
  return {
    Type: "bind",
    Source: from,
    Target: to,
    ReadOnly: readOnly,
    // Mounts below a read-only mount would be writable.
    BindOptions: {
      Propagation: "rprivate",
      ...(readOnly ? { NonRecursive: true } : {}),
    } as Docker.MountSettings["BindOptions"],
  };
}
