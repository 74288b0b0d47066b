/**
 * Starts the daemon as a plain process, for machines without namespaces. **This is no security boundary**: commands see
 * the host with the rights of their account.
 *
 * One directory holds a sandbox's own files: `/tmp` and a temporary home, which are mapped like the rest.
 */

import { chmodSync, chownSync, mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import {
  DEFAULT_CWD,
  HOME_DIRECTORY,
  HOME_LINK,
  KEPT_HOME,
  SandlotError,
  TEMPORARY_HOME,
  WORKSPACE_ROOT,
} from "@sandlot/contract";
import { SANDBOXD_NODE_FLAGS } from "@sandlot/sandboxd";
import { homePathOf } from "../../../backend/blueprint.ts";
import { type Layout, type ObjectName, privatePath } from "../../../host/layout.ts";
import type { Binding } from "../../../host/mounts/mounts.ts";
import { baseEnvironment } from "../../../sandboxd/inner-account.ts";
import { dropTo, type Engine, type Prepared, type StartPlan } from "../engine/engine.ts";
import { FD } from "../engine/start.ts";
import type { LocalSettings } from "../settings.ts";
import { openDaemon } from "./open-daemon.ts";
import { openWay } from "./open-way.ts";
import { type Mapping, PathMap } from "./path-map.ts";

/** In the environment of every process of a sandbox, to find them when there is no namespace to end. */
export const OBJECT_VARIABLE = "SANDLOT_OBJECT";

export class UnsafeEngine implements Engine {
  readonly #settings: LocalSettings;
  readonly #layout: Layout;

  constructor(settings: LocalSettings, layout: Layout) {
    this.#settings = settings;
    this.#layout = layout;
  }

  async ready(): Promise<void> {
    // Paths become part of command lines, where the command decides about quoting.
    if (/^[\w./-]+$/.test(this.#layout.root)) return;
    const problem = `${this.#layout.root} has characters that mean something to a shell`;
    const fix = "set SANDLOT_HOME to a path of letters, digits, dots, hyphens and underscores";
    throw new SandlotError("isolation_unavailable", { backend: "local", problem, fix });
  }

  async plan({ name, spec, group, bindings }: Prepared): Promise<StartPlan> {
    const { account, daemon, home } = this.#settings;
    const place = this.#makePrivate(name);
    const { nodePath, bundle } =
      account === null
        ? { nodePath: this.#settings.nodePath, bundle: daemon.bundle }
        : openDaemon(this.#settings, account, this.#layout.root);
    const needed = [place, nodePath, bundle, ...bindings.map(({ from }) => from)];
    if (account !== null) openWay(needed, home, account);
    const map = new PathMap(mappingsOf(this.#layout, name, bindings));
    const runtime = join(place, "sandboxd-runtime");
    symlinkSync(nodePath, runtime);
    const environment = {
      ...baseEnvironment(map.toHost(homePathOf(spec.blueprint)), account === null ? process.env.PATH : undefined),
      TMPDIR: join(place, "tmp"),
      PWD: map.toHost(DEFAULT_CWD),
      ...spec.blueprint.environment,
      [OBJECT_VARIABLE]: name,
    };
    const started = [runtime, ...SANDBOXD_NODE_FLAGS, bundle, "--config-fd", String(FD.config)];
    return {
      command: [...group.startPrefix, ...dropTo(account), ...started],
      environment: { TMPDIR: join(place, "daemon"), [OBJECT_VARIABLE]: name },
      config: { environment, defaultCwd: map.toHost(DEFAULT_CWD), ownsPidNamespace: false },
      init: "child",
      seccomp: null,
      files: [],
      held: [],
    };
  }

  #makePrivate(name: ObjectName): string {
    const { account } = this.#settings;
    const place = privatePath(this.#layout, name);
    mkdirSync(place, { recursive: true, mode: 0o711 });
    if (account !== null) chmodSync(join(place, ".."), 0o711);
    for (const part of ["tmp", "home", "daemon"].map((one) => join(place, one))) {
      mkdirSync(part, { mode: 0o700 });
      if (account !== null) chownSync(part, account.uid, account.gid);
    }
    return place;
  }
}

/** The mappings that replace mounts. */
export function mappingsOf(layout: Layout, name: ObjectName, bindings: readonly Binding[]): readonly Mapping[] {
  const place = privatePath(layout, name);
  const mounts = bindings.flatMap(({ from, to, readOnly }) =>
    to === "/mnt"
      ? workspaceMappings(join(from, "user-data"))
      : to === WORKSPACE_ROOT
        ? workspaceMappings(from)
        : [{ seen: to, host: from, readOnly }],
  );
  // Of two at one place the later one is a mount that replaces Sandlot's own.
  const places = new Map(mounts.map((mapping) => [mapping.seen, mapping]));
  return [
    ...places.values(),
    { seen: "/tmp", host: join(place, "tmp"), readOnly: false },
    { seen: TEMPORARY_HOME, host: join(place, "home"), readOnly: false },
  ];
}

function workspaceMappings(userData: string): readonly Mapping[] {
  return [
    { seen: WORKSPACE_ROOT, host: userData, readOnly: false },
    // First: a path of the home has this name in results.
    { seen: KEPT_HOME, host: join(userData, HOME_DIRECTORY), readOnly: false },
    { seen: HOME_LINK, host: join(userData, HOME_DIRECTORY), readOnly: false },
    { seen: "/mnt/acp-workspace", host: join(userData, ".acp-workspace"), readOnly: false },
  ];
}
