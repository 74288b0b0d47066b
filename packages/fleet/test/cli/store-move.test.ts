import { join } from "node:path";
import { it } from "vitest";
import { hasBubblewrap, moveFleet } from "./moved-fleet.ts";

it.skipIf(!hasBubblewrap)(
  "a fleet moves to another SQLite file: every sandbox is found warm, with its files and processes",
  () => moveFleet((home) => ({ type: "sqlite", path: join(home, "new.db") })),
);
