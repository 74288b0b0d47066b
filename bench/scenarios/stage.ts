/** A fleet for one scenario, in its own temporary directory. */

import type { FleetConfig } from "../../packages/fleet/src/config/fleet-config.ts";
import type { Fleet } from "../../packages/fleet/src/fleet.ts";
import { openLocalFleet } from "../stage/local-fleet.ts";
import { openStage as openDockerStage } from "../suites/docker/stage.ts";

export interface ScenarioStage extends AsyncDisposable {
  readonly fleet: Fleet;
  readonly image: string | null;
}

/** `image` is for engines with images; `null` takes the tests' own. */
export async function openStage(
  backend: "local" | "docker",
  config: FleetConfig,
  image: string | null,
): Promise<ScenarioStage> {
  if (backend === "local") {
    const opened = await openLocalFleet(config);
    return { fleet: opened.fleet, image: null, [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose]() };
  }
  const engine = await openDockerStage();
  try {
    const blueprints = image === null ? {} : { blueprints: { default: { image } } };
    const opened = await engine.fleet({ ...config, ...blueprints });
    return {
      fleet: opened.fleet,
      image: image ?? engine.image,
      async [Symbol.asyncDispose]() {
        await opened[Symbol.asyncDispose]();
        await engine[Symbol.asyncDispose]();
      },
    };
  } catch (error) {
    await engine[Symbol.asyncDispose]();
    throw error;
  }
}
