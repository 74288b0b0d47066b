/** Facts about a blueprint's sandboxes before one is created. */

import { existsSync } from "node:fs";
import type { SandboxAbout } from "@sandlot/contract";
import type { Backend } from "../backend/backend.ts";
import { blueprintNamed } from "../config/blueprint-named.ts";
import type { Settings } from "../config/settings.ts";

/** Programs that agents commonly need, in the order of the list. */
const PROGRAMS = "python3 pip node npm git curl jq rg gcc make go cargo java ruby perl sqlite3 ffmpeg".split(" ");

export function sandboxAbout(
  settings: Settings,
  { programFolders }: Pick<Backend, "programFolders">,
  blueprintName: string,
): SandboxAbout {
  const { network } = blueprintNamed(settings, blueprintName).blueprint;
  const allow = network.allow.flatMap(({ host, ports }) => ports.map((port) => `${host}:${port}`));
  return { network: { mode: network.mode, allow }, ...(programFolders && { programs: programsIn(programFolders) }) };
}

function programsIn(folders: readonly string[]): readonly string[] {
  return PROGRAMS.filter((name) => folders.some((folder) => existsSync(`${folder}/${name}`)));
}
