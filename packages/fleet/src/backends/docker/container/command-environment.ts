/**
 * The environment of commands in a container: the image's own variables, and the home for everything that is installed
 * later.
 */

import { HOME_LINK, ownPath, SYSTEM_PATH, WORKSPACE_ROOT } from "@sandlot/contract";
import { baseEnvironment, ELSEWHERE_VARIABLES, installVariables } from "../../../sandboxd/inner-account.ts";

type Variables = Readonly<Record<string, string>>;

/** They describe the image's build, or its own account. */
const NOT_TAKEN: ReadonlySet<string> = new Set([...ELSEWHERE_VARIABLES, "HOME", "USER", "PWD", "TMPDIR", "PATH"]);

/** For commands of our daemon, which have no other environment. */
export function commandEnvironment(home: string, image: Variables): Variables {
  const usable = Object.entries(image).filter(([name]) => !NOT_TAKEN.has(name));
  return { ...baseEnvironment(home), ...Object.fromEntries(usable), ...installEnvironment(home, image) };
}

/** For commands of an image's own server, which have its environment already. */
export function installEnvironment(home: string, image: Variables): Variables {
  // An image may name our home in its PATH, in either spelling.
  const isOwn = (folder: string) => [WORKSPACE_ROOT, HOME_LINK, home].some((own) => folder.startsWith(`${own}/`));
  const folders = (image.PATH ?? SYSTEM_PATH).split(":").filter((folder) => !isOwn(folder));
  return { HOME: home, PATH: [ownPath(home), ...folders].join(":"), ...installVariables(home) };
}
