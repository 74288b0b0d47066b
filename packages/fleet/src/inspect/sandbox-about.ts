/** What can be said of the sandboxes of a blueprint before one is made. */

import { existsSync } from "node:fs";
import type { SandboxAbout } from "@sandlot/contract";
import { blueprintNamed } from "../config/blueprint-named.ts";
import type { Settings } from "../config/settings.ts";

/** Programs that agents ask for, in the order in which they are told. */
const PROGRAMS = "python3 pip node npm git curl jq rg gcc make go cargo java ruby perl sqlite3 ffmpeg".split(" ");
const FOLDERS = ["/usr/local/bin", "/usr/bin", "/bin"];

export function sandboxAbout(settings: Settings, blueprintName: string): SandboxAbout {
  const { network } = blueprintNamed(settings, blueprintName).blueprint;
  const allow = network.allow.flatMap(({ host, ports }) => ports.map((port) => `${host}:${port}`));
  return { network: { mode: network.mode, allow }, ...programs(settings.backend) };
}

/** A local sandbox has the host's own `/usr`. What is in an image is known when it runs. */
function programs(backend: Settings["backend"]): Pick<SandboxAbout, "programs"> {
  if (backend === "memory") return { programs: [] };
  if (backend !== "local") return {};
  return { programs: PROGRAMS.filter((name) => FOLDERS.some((folder) => existsSync(`${folder}/${name}`))) };
}
