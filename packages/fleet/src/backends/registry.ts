/**
 * Every backend, by name. Messages and documents keep this order. `config/` builds the configuration's schema from this
 * table; `open-fleet.ts` and `sandlot doctor` use it, too.
 */

import { DOCKER } from "./docker/entry.ts";
import { KUBERNETES } from "./kubernetes/entry.ts";
import { LOCAL } from "./local/entry.ts";
import { MEMORY } from "./memory/entry.ts";
import { REMOTE } from "./remote/entry.ts";

export const BACKENDS = {
  local: LOCAL,
  docker: DOCKER,
  kubernetes: KUBERNETES,
  remote: REMOTE,
  memory: MEMORY,
} as const;
