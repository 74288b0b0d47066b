import { it } from "vitest";
import { hasBubblewrap, moveFleet } from "../../cli/moved-fleet.ts";
import { RedisProcess, reasonToSkip } from "./redis-process.ts";

it("a fleet moves from SQLite to Redis: every sandbox is found warm, with its files and processes", async (context) => {
  const missing = reasonToSkip() ?? (hasBubblewrap ? null : "bubblewrap is not installed");
  if (missing !== null) context.skip(missing);
  const server = await RedisProcess.start();
  try {
    await moveFleet(() => ({ type: "redis", url: `redis://127.0.0.1:${server.port}/0` }));
  } finally {
    await server.dispose();
  }
});
