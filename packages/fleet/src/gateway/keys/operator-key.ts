/**
 * The first operator key: the first `serve` creates it in `$SANDLOT_HOME/operator.key` (0600) for the command line. A
 * process that can read that file can also read the fleet's state, so the file gives away nothing new.
 */

import { link, readFile, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "../../world/disk-trouble.ts";
import type { World } from "../../world/world.ts";
import type { ApiKeys } from "./api-keys.ts";

export function operatorKeyPath(home: string): string {
  return join(home, "operator.key");
}

/** The key for the command line, or `null` where no gateway has run yet. */
export async function readOperatorKey(home: string): Promise<string | null> {
  try {
    return (await readFile(operatorKeyPath(home), "utf8")).trim();
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return null;
    throw error;
  }
}

/** The id in a key's text, which is no secret; `null` where it is no key. */
export function operatorKeyId(text: string): string | null {
  return /^slk_([0-9a-f]{12})_[0-9a-f]{48}$/.exec(text)?.[1] ?? null;
}

/** Creates the key when there is none. A key revoked on purpose is not replaced: its file still exists. */
export async function ensureOperatorKey(
  keys: ApiKeys,
  home: string,
  world: World,
): Promise<{ readonly made: boolean }> {
  if ((await readOperatorKey(home)) !== null) return { made: false };
  const { id, key } = await keys.create({ scope: "operator", label: "made by the first serve" });
  const staged = join(home, `.operator-${world.randomHex(6)}.part`);
  await writeFile(staged, `${key}\n`, { mode: 0o600, flag: "wx" });
  try {
    // Fails when another process was first; then its key is used.
    await link(staged, operatorKeyPath(home));
    return { made: true };
  } catch (error) {
    await keys.revoke(id);
    if (error instanceof Error && "code" in error && error.code === "EEXIST") return { made: false };
    throw error;
  } finally {
    await unlink(staged);
  }
}
