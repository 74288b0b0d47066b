/** The rights of the user of the store, as docs/stores/redis.md lists them. A test reads them from there. */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const GUIDE = fileURLToPath(new URL("../../../../../docs/stores/redis.md", import.meta.url));

/** The words after `-@all` in the example of an ACL. */
export const RIGHTS: readonly string[] = (() => {
  const [, list] = /ACL SETUSER[^`]*?-@all([^`]*?)```/.exec(readFileSync(GUIDE, "utf8")) ?? [];
  const rights = list?.replaceAll("\\", "").match(/\+[a-z|]+/g);
  if (rights === null || rights === undefined) throw new Error(`${GUIDE} has no ACL SETUSER example`);
  return rights;
})();
