/**
 * Starting sandboxes with bubblewrap, and the daemon inside: its files on the host, their paths inside, and its command.
 *
 * Invariants
 * - No path of the daemon's command line contains `node`: `pkill -f node` inside then ends only the agent's own programs.
 * - The first process inside is the supervisor. It ends with the process outside that waits for it, so killing that one
 *   ends everything.
 * - Supervisor and daemon are closed to commands where the machine has a loader that supports it
 *   (`runtime-directory.ts`).
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { DEFAULT_CWD, SandlotError } from "@sandlot/contract";
import { SANDBOXD_NODE_FLAGS } from "@sandlot/sandboxd";
import { homePathOf } from "../../../backend/blueprint.ts";
import type { Account, IdMapping, MountStep, OwnedPath } from "../../../host/accounts/index.ts";
import { modeVariables } from "../../../host/egress/sandbox-side/mode-variables.ts";
import { type Layout, objectDirectory } from "../../../host/layout.ts";
import { memoryFileSystemBytes } from "../../../host/limits/index.ts";
import type { Binding } from "../../../host/mounts/mounts.ts";
import { ownedPaths } from "../../../host/mounts/owned-mounts.ts";
import {
  closedSupervisor,
  type KeeperParts,
  RUNTIME,
  type RuntimeDirectory,
  RuntimeKeeper,
  runtimeBindings,
} from "../../../host/runtime/runtime-directory.ts";
import { baseEnvironment } from "../../../sandboxd/inner-account.ts";
import type { World } from "../../../world/world.ts";
import { dropTo, type Engine, type Prepared, type StartPlan } from "../engine/engine.ts";
import { FD } from "../engine/start.ts";
import type { LocalSettings } from "../settings.ts";
import { bubblewrapArguments, DAEMON_DIRECTORY, DAEMON_TEMPORARY } from "./arguments.ts";
import { Bubblewrap } from "./bubblewrap.ts";
import { stage, stagePrefix } from "./stage.ts";

export class BubblewrapEngine implements Engine {
  readonly #settings: LocalSettings;
  readonly #layout: Layout;
  readonly #root: string;
  readonly #bubblewrap: Bubblewrap;
  readonly #keeper: RuntimeKeeper;
  readonly #mapping: IdMapping;
  #runtime: RuntimeDirectory | null = null;

  /** `directory`, below the fleet's, keeps the files that every sandbox gets a copy of. */
  constructor(
    settings: LocalSettings,
    layout: Layout,
    directory: string,
    mapping: IdMapping,
    { world, onProblem }: Pick<KeeperParts, "onProblem"> & { readonly world: World },
  ) {
    const { nodePath, daemon } = settings;
    const { root } = layout;
    const objects = [layout.objects, join(root, "containers")];
    this.#settings = settings;
    this.#layout = layout;
    this.#root = root;
    this.#mapping = mapping;
    this.#bubblewrap = new Bubblewrap(settings.bubblewrapPath, directory);
    this.#keeper = new RuntimeKeeper({ parent: join(root, "frames"), nodePath, daemon, objects, world, onProblem });
  }

  async ready(): Promise<void> {
    const [runtime] = await Promise.all([this.#keeper.get(), this.#bubblewrap.ready()]);
    this.#runtime = runtime;
  }

  async plan({ spec, group, egress, bindings, account }: Prepared, signal: AbortSignal): Promise<StartPlan> {
    const { nodePath, bubblewrapPath, local } = this.#settings;
    const { seccomp } = this.#bubblewrap;
    const runtime = this.#runtime;
    if (runtime === null) throw new SandlotError("internal", { problem: "the daemon's files were not made yet" });
    this.#keeper.use(runtime, objectDirectory(this.#layout, `${spec.labels.sandboxId}-${spec.labels.generation}`));
    const staged = stage([...bindings, ...daemonBindings(runtime, nodePath)], this.#root, account);
    const namespace = await this.#namespace(ownedPaths(bindings), staged.steps, account, signal);
    const { blueprint } = spec;
    const home = homePathOf(blueprint);
    const files = this.#bubblewrap.openFiles(home);
    const args = bubblewrapArguments({
      ...this.#bubblewrap.shape(),
      files: files.map(({ path }, index) => ({ path, fd: FD.firstFile + index })),
      bindings: staged.bindings,
      memoryBytes: (wanted) => memoryFileSystemBytes(wanted, blueprint.limits.memoryBytes),
      keepsNetwork: egress !== null,
      temporaryBytes: local.tmpBytes,
      home,
      homeBytes: blueprint.home === "temporary" ? local.homeBytes : null,
      statusFd: FD.status,
      seccompFd: seccomp === null ? null : FD.seccomp,
      command: daemonCommand(runtime),
    });
    const enter = [...namespace.enter, ...(egress?.enter ?? []), ...dropTo(account)];
    // Empty where the group itself is limited.
    const { commandPrefix } = group;
    const network = { ...modeVariables(blueprint.network.mode), ...egress?.network.environment };
    const environment = { ...baseEnvironment(home), ...network, ...blueprint.environment };
    return {
      command: [...group.startPrefix, ...enter, bubblewrapPath, ...args],
      environment: {},
      config: { environment, commandPrefix, defaultCwd: DEFAULT_CWD, ownsPidNamespace: true },
      init: "told",
      seccomp,
      files: files.map(({ fd }) => fd),
      held: namespace.held,
    };
  }

  /**
   * The mount namespace that bubblewrap starts in, which shows the sandbox's files as its own. This process enters it
   * by its descriptor, so that no process inside ever has that descriptor.
   */
  async #namespace(
    paths: readonly OwnedPath[],
    steps: readonly MountStep[],
    account: Account | null,
    signal: AbortSignal,
  ): Promise<{ readonly enter: readonly string[]; readonly held: readonly number[] }> {
    if (account === null || paths.length === 0) return { enter: stagePrefix(steps), held: [] };
    const descriptor = await this.#mapping.mountNamespace(paths, account, steps, signal);
    return { enter: ["nsenter", `--mount=/proc/${process.pid}/fd/${descriptor}`, "--"], held: [descriptor] };
  }
}

const DIRECTORY = `${DAEMON_DIRECTORY}/d`;

function daemonBindings(runtime: RuntimeDirectory, nodePath: string): readonly Binding[] {
  return runtimeBindings({ ...runtime, nodePath }, DIRECTORY);
}

/**
 * The log inside goes to a file on the daemon's own file system, which is small, so it cannot fill a disk outside. When
 * everything ends, the log is also printed outside, where a caller may still wait for the start.
 */
const LOG = `${DAEMON_TEMPORARY}/log`;
const SCRIPT = `exec 9>&2 2>>${LOG}; trap 'cat ${LOG} >&9' EXIT; . "$0"`;

const SETPRIV = "/usr/bin/setpriv";

function daemonCommand({ bringsNode }: RuntimeDirectory): readonly string[] {
  // Without setpriv, killing the waiting process leaves the sandbox running; its own process still identifies it.
  const endWithParent = existsSync(SETPRIV) ? [SETPRIV, "--pdeathsig", "KILL", "--"] : [];
  return [...endWithParent, ...(bringsNode ? closedSupervisor(DIRECTORY, SCRIPT) : plainSupervisor())];
}

function plainSupervisor(): readonly string[] {
  const at = (name: string) => join(DIRECTORY, name);
  const daemon = [at(RUNTIME.node), ...SANDBOXD_NODE_FLAGS, at(RUNTIME.start)];
  return ["/bin/sh", "-c", SCRIPT, at(RUNTIME.supervisor), ...daemon];
}
