/**
 * Starting sandboxes with bubblewrap.
 */

import { join } from "node:path";
import { DEFAULT_CWD, SandlotError } from "@sandlot/contract";
import { daemonBindings, daemonCommand } from "../daemon-files.ts";
import { dropTo, type Engine, type Prepared, type StartPlan } from "../engine/engine.ts";
import { FD } from "../engine/start.ts";
import { memoryFileSystemBytes } from "../limits/index.ts";
import { type RuntimeDirectory, RuntimeKeeper } from "../runtime-directory.ts";
import type { LocalSettings } from "../settings.ts";
import { BASE_ENVIRONMENT, bubblewrapArguments } from "./arguments.ts";
import { Bubblewrap } from "./bubblewrap.ts";
import { stage } from "./stage.ts";

export class BubblewrapEngine implements Engine {
  readonly #settings: LocalSettings;
  readonly #root: string;
  readonly #bubblewrap: Bubblewrap;
  readonly #keeper: RuntimeKeeper;
  #runtime: RuntimeDirectory | null = null;

  /** `root` is the fleet's directory; `directory`, below it, keeps files that every sandbox gets a copy of. */
  constructor(settings: LocalSettings, root: string, directory: string) {
    this.#settings = settings;
    this.#root = root;
    this.#bubblewrap = new Bubblewrap(settings.bubblewrapPath, directory);
    this.#keeper = new RuntimeKeeper(join(root, "frames"), settings.nodePath, settings.daemon);
  }

  async ready(): Promise<void> {
    const [runtime] = await Promise.all([this.#keeper.get(), this.#bubblewrap.ready()]);
    this.#runtime = runtime;
  }

  plan({ spec, group, egress, bindings }: Prepared): StartPlan {
    const { account, nodePath, bubblewrapPath, local } = this.#settings;
    const { seccomp } = this.#bubblewrap;
    const runtime = this.#runtime;
    if (runtime === null) throw new SandlotError("internal", { problem: "the daemon's files were not made yet" });
    const staged = stage([...bindings, ...daemonBindings(runtime, nodePath)], this.#root, account);
    const files = this.#bubblewrap.openFiles();
    const args = bubblewrapArguments({
      ...this.#bubblewrap.shape(),
      files: files.map(({ path }, index) => ({ path, fd: FD.firstFile + index })),
      bindings: staged.bindings,
      memoryBytes: (wanted) => memoryFileSystemBytes(wanted, spec.blueprint.limits.memoryBytes),
      keepsNetwork: egress !== null,
      temporaryBytes: local.tmpBytes,
      homeBytes: local.homeBytes,
      statusFd: FD.status,
      seccompFd: seccomp === null ? null : FD.seccomp,
      command: daemonCommand(runtime),
    });
    const enter = [...staged.prefix, ...(egress?.enter ?? []), ...dropTo(account)];
    // Empty where the group itself is limited.
    const { commandPrefix } = group;
    const environment = { ...BASE_ENVIRONMENT, ...egress?.network.environment, ...spec.blueprint.environment };
    return {
      command: [...group.startPrefix, ...enter, bubblewrapPath, ...args],
      environment: {},
      config: { environment, commandPrefix, defaultCwd: DEFAULT_CWD, ownsPidNamespace: true },
      init: "told",
      seccomp,
      files: files.map(({ fd }) => fd),
    };
  }
}
