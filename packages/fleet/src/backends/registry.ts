/**
 * Every backend, by name. The first is named first in messages and documents. `config/` makes the schema of a configuration from
 * this table, `open-fleet.ts` opens backends by it, and `sandlot doctor` asks it.
 */

import { DOCKER } from "./docker/entry.ts";
import { LOCAL } from "./local/entry.ts";
import { MEMORY } from "./memory/entry.ts";

export const BACKENDS = { local: LOCAL, docker: DOCKER, memory: MEMORY } as const;
