/**
 * The Docker backend's settings: the configured part, and the part that follows from this installation.
 */

import { homedir } from "node:os";
import { type SandboxdFiles, sandboxdFiles } from "@sandlot/sandboxd";
import type { FleetFacts } from "../../backend/entry.ts";
import { type Account, ID_REGISTRY, IdMapping } from "../../host/accounts/index.ts";
import { AIO_RUNTIME, type DockerConfig } from "./config.ts";
import type { Environment } from "./engine/discovery.ts";

/** The part of a fleet's settings that this backend uses. */
export type ConfiguredSettings = Pick<FleetFacts, "home" | "fleetId" | "skillsPath" | "orphanTimeoutMs"> &
  Partial<Pick<FleetFacts, "blueprints" | "accountIds" | "checkpoints">> & { readonly docker: DockerConfig };

export interface DockerSettings extends ConfiguredSettings {
  /** Images have servers of their own that speak AIO (`docker.runtime: aio`); the engine's runtime is then its usual one. */
  readonly speaksAio: boolean;
  /** The owner of workspaces on disk, and the account of containers without their own; never the host's root. */
  readonly account: Account;
  /** The registry where homes of this machine reserve their ids; only tests use another. */
  readonly idRegistry: string;
  /** Shows sandboxes the files of other owners as theirs. */
  readonly mapping: IdMapping;
  /** Whether workspaces are given to that account, or belong to it because it is ours. */
  readonly ownsAccount: boolean;
  /** Apple's `container`, where that is the engine. */
  readonly containerProgram: string;
  /** The Node that runs the daemon inside. */
  readonly nodePath: string;
  /** The daemon's files that go inside. */
  readonly daemon: SandboxdFiles;
  /** Where the directory that every container mounts is made; `null` for the fleet's own. */
  readonly runtimeDirectory: string | null;
  /** The deadline for a container's readiness, once its image is there. */
  readonly readyTimeoutMs: number;
  readonly blueprints: FleetFacts["blueprints"];
  readonly environment: Environment;
  readonly userHome: string;
}

/** Many times what a start takes on a busy engine; a longer deadline would hide a fault. */
const READY_TIMEOUT_MS = 60_000;

export function dockerSettings(configured: ConfiguredSettings): DockerSettings {
  const { home, fleetId, skillsPath, orphanTimeoutMs, blueprints = {}, accountIds = null, checkpoints } = configured;
  const speaksAio = configured.docker.runtime === AIO_RUNTIME;
  const docker = speaksAio ? { ...configured.docker, runtime: null } : configured.docker;
  const uid = process.getuid?.() ?? 0;
  const account = uid === 0 ? { uid: docker.uid, gid: docker.gid } : { uid, gid: process.getgid?.() ?? uid };
  return {
    ...{ home, fleetId, docker, speaksAio, skillsPath, orphanTimeoutMs, blueprints, accountIds },
    ...(checkpoints !== undefined && { checkpoints }),
    account,
    idRegistry: ID_REGISTRY,
    mapping: new IdMapping(),
    ownsAccount: uid !== 0,
    containerProgram: "container",
    nodePath: process.execPath,
    daemon: sandboxdFiles(),
    runtimeDirectory: null,
    readyTimeoutMs: READY_TIMEOUT_MS,
    environment: process.env,
    userHome: homedir(),
  };
}
