/** The `docker` backend in the registry. */

import type { z } from "zod";
import type { BackendEntry } from "../../backend/entry.ts";
import { AIO_RUNTIME, type DockerConfig, dockerConfig, dockerSchema } from "./config.ts";

export const DOCKER = {
  name: "docker",
  about: "a Docker or Podman engine",
  configSchema: dockerSchema,
  endsWithProcess: false,
  settings: dockerConfig,
  blueprintKey({ engine, image, runtime, transport, network, uid, gid, readOnlyRoot, capabilities }) {
    // The first kind of engine adds no word here, so that hashes of earlier releases stay valid.
    const kind = engine === "docker" ? [] : [engine];
    return JSON.stringify([
      "docker",
      ...kind,
      image,
      runtime,
      transport,
      network,
      uid,
      gid,
      readOnlyRoot,
      capabilities,
    ]);
  },
  canLimit: () => true,
  experimental: ({ engine, runtime }) => [
    ...(engine === "apple-container"
      ? ["docker.engine: apple-container is tested against a stand-in of Apple's program only"]
      : []),
    ...(runtime === AIO_RUNTIME ? ["docker.runtime: aio is tested against a stand-in of the image's server only"] : []),
  ],
  async open({ fleet, section, world, others }) {
    const { openDockerBackend } = await import("./backend.ts");
    return openDockerBackend({ settings: { ...fleet, docker: section }, world, others });
  },
  async doctor({ fleet, section, environment, trial }) {
    const { dockerFindings } = await import("./doctor.ts");
    return dockerFindings({ ...fleet, docker: section }, { environment, trial });
  },
} as const satisfies BackendEntry<z.output<typeof dockerSchema>, DockerConfig>;
