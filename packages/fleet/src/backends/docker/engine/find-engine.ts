/** The engine that the settings name, or the first of the usual places that answers. */

import type { World } from "../../../world/world.ts";
import { connectAppleEngine } from "../apple/apple-engine.ts";
import type { DockerSettings } from "../settings.ts";
import { enginePlaces } from "./discovery.ts";
import { connectEngine } from "./docker-engine.ts";
import type { Engine } from "./engine.ts";

export function findEngine(settings: DockerSettings, world: World): Promise<Engine> {
  const { environment, userHome, docker, containerProgram } = settings;
  if (docker.engine === "apple-container") return connectAppleEngine(containerProgram, world);
  return connectEngine(enginePlaces(docker.host, environment, userHome, process.getuid?.() ?? 0), world);
}
