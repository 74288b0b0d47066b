/**
 * The arguments of `container create` for a container. Pure.
 *
 * Every container is a virtual machine of its own, with a kernel, a disk and nothing else of the host. The machine
 * replaces Docker's namespaces, seccomp and control groups; flags that exist are set all the same.
 *
 * Invariants
 * - The container never gets more than requested: what the flags cannot express exactly is refused.
 * - There is no network.
 * - A colon in a path cannot be escaped, so a path that has one is refused.
 */

import { SandlotError } from "@sandlot/contract";
import type Docker from "dockerode";
import { isWithin } from "../../../world/paths.ts";
import type { ContainerRequest, SocketRelay } from "../engine/engine.ts";

const MIB = 1024 * 1024;
const NANO = 1_000_000_000;

/** All arguments after the program's name. Throws `capability_missing` or `mount_refused`. */
export function createArguments(request: ContainerRequest): readonly string[] {
  const {
    name,
    Labels = {},
    User,
    WorkingDir,
    Env = [],
    Entrypoint,
    Cmd = [],
    Image,
    HostConfig = {},
    relay,
  } = request;
  const [program = ""] = Array.isArray(Entrypoint) ? Entrypoint : [Entrypoint ?? ""];
  return [
    "create",
    ...["--name", name ?? ""],
    ...Object.entries(Labels).flatMap(([key, value]) => ["--label", `${key}=${value}`]),
    ...["--user", User ?? "", "--workdir", WorkingDir ?? "/"],
    ...networkArguments(HostConfig),
    ...hardening(HostConfig, relay),
    ...limitArguments(HostConfig),
    ...(HostConfig.Mounts ?? []).flatMap(mountArguments),
    ...memoryFileSystems(HostConfig.Tmpfs, relay),
    ...(relay === undefined ? [] : ["--publish-socket", `${plain(relay.outside, relay.inside)}:${relay.inside}`]),
    ...Env.flatMap((entry) => ["--env", entry]),
    ...["--entrypoint", program, Image ?? ""],
    ...Cmd,
  ];
}

function networkArguments({ NetworkMode }: Docker.HostConfig): readonly string[] {
  if (NetworkMode !== "none")
    throw missing("network", `network ${NetworkMode}, on which sandboxes could reach each other`);
  return ["--network", "none", "--no-dns"];
}

/**
 * A relayed socket must lie on the machine's own disk (https://github.com/apple/container/issues/2101), so with a relay
 * the root is writable. It is a copy that ends with the machine.
 */
function hardening(host: Docker.HostConfig, relay: SocketRelay | undefined): readonly string[] {
  const isReadOnly = host.ReadonlyRootfs === true && relay === undefined;
  return [
    ...(host.CapDrop ?? []).flatMap((capability: string) => ["--cap-drop", capability]),
    ...(host.CapAdd ?? []).flatMap((capability: string) => ["--cap-add", capability]),
    ...(isReadOnly ? ["--read-only"] : []),
    ...(host.Runtime === undefined ? [] : ["--runtime", host.Runtime]),
  ];
}

function limitArguments({ Memory, NanoCpus, PidsLimit, ShmSize, Ulimits = [] }: Docker.HostConfig): readonly string[] {
  const cpus = NanoCpus === undefined ? undefined : NanoCpus / NANO;
  if (cpus !== undefined && !Number.isInteger(cpus))
    throw missing("limits", `limits.cpuCount ${cpus}: a virtual machine has whole processors`);
  if (Memory !== undefined && Memory < MIB)
    throw missing("limits", `limits.memoryBytes ${Memory}: less than a mebibyte`);
  // The machine has one account, so a limit per account limits the machine.
  const processes = PidsLimit == null ? [] : [{ Name: "nproc", Soft: PidsLimit, Hard: PidsLimit }];
  return [
    ...(Memory === undefined ? [] : ["--memory", mebibytes(Memory)]),
    ...(cpus === undefined ? [] : ["--cpus", String(cpus)]),
    ...(ShmSize === undefined ? [] : ["--shm-size", mebibytes(ShmSize)]),
    ...[...Ulimits, ...processes].flatMap(({ Name, Soft, Hard }) => ["--ulimit", `${Name}=${Soft}:${Hard}`]),
  ];
}

/** The only form that takes both files and directories. */
function mountArguments({ Source, Target, ReadOnly }: Docker.MountSettings): readonly string[] {
  return ["--volume", `${plain(Source, Target)}:${plain(Target, Target)}${ReadOnly === true ? ":ro" : ""}`];
}

/** Its owner cannot be set, and there is only one account inside. */
function memoryFileSystems(
  fileSystems: Readonly<Record<string, string>> | undefined,
  relay: SocketRelay | undefined,
): readonly string[] {
  return Object.entries(fileSystems ?? {})
    .filter(([path]) => relay === undefined || !isWithin(relay.inside, path))
    .flatMap(([path, options]) => {
      const bytes = Number(/(?:^|,)size=(\d+)/.exec(options)?.[1] ?? "0");
      return ["--mount", `type=tmpfs,destination=${path},size=${mebibytes(bytes)},mode=1777`];
    });
}

/** Rounded down, so that rounding never raises a limit. */
function mebibytes(bytes: number): string {
  return `${Math.max(1, Math.floor(bytes / MIB))}M`;
}

function plain(path: string, sandboxPath: string): string {
  if (!path.includes(":")) return path;
  const problem = "Apple's container cannot be told of a path that has a colon";
  throw new SandlotError("mount_refused", { hostPath: path, sandboxPath, problem });
}

function missing(capability: string, neededBy: string): SandlotError {
  return new SandlotError("capability_missing", { backend: "docker", capability, neededBy });
}
