/**
 * Every store, by name. `config/` builds the section `store` of a configuration from this table, `open-fleet.ts` opens
 * stores through it, and `sandlot doctor` asks it.
 */

import { MEMORY_STORE } from "./memory/entry.ts";
import { POSTGRES_STORE } from "./postgres/entry.ts";
import { REDIS_STORE } from "./redis/entry.ts";
import { SQLITE_STORE } from "./sqlite/entry.ts";

export const STORES = {
  memory: MEMORY_STORE,
  sqlite: SQLITE_STORE,
  postgres: POSTGRES_STORE,
  redis: REDIS_STORE,
} as const;
