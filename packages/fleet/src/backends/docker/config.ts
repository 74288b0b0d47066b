/** The section `docker` of a configuration. */

import { z } from "zod";
import { accountId, DEFAULT_ACCOUNT_ID } from "../../backend/config/account-ids.ts";
import { durationOverZero, size } from "../../backend/config/amounts.ts";

export const DOCKER_DEFAULTS = {
  /** Most engines speak Docker's API. */
  engine: "docker",
  /** Made from `images/sandbox`; small, with what agents commonly use. */
  image: "sandlot/sandbox:1",
  /** A shared socket needs no network at all; a port is for engines that cannot share one. */
  transport: "auto",
  /** Only this machine reaches a daemon's port, which a token guards as well. A wider bind must be configured. */
  publishBind: "127.0.0.1",
  publishHost: "127.0.0.1",
  uid: DEFAULT_ACCOUNT_ID,
  gid: DEFAULT_ACCOUNT_ID,
  tmpBytes: 1_073_741_824,
  homeBytes: 1_073_741_824,
  /** An image that must write outside /tmp, home and the workspace needs `false`. */
  readOnlyRoot: true,
  /** An idle daemon costs almost nothing, and an unpause takes many times as long as a lease. */
  pauseParked: false,
  /** Asking a registry is the engine's usual behaviour, and only for what it does not have. */
  pull: "missing",
  /** Some gigabytes over a slow network. It does not count against `acquireTimeoutMs` of later acquires. */
  pullTimeoutMs: 600_000,
} as const;

/** In place of the name of a runtime: images with servers of their own. */
export const AIO_RUNTIME = "aio";

const absolutePath = z.string().regex(/^\/[^\0]*$/, "must be an absolute path");

export const dockerSchema = z
  .strictObject({
    engine: z
      .enum(["docker", "apple-container"])
      .default(DOCKER_DEFAULTS.engine)
      .describe(
        "`docker`: any engine that speaks Docker's API, Podman included. `apple-container` (experimental): Apple's `container` program on macOS, which " +
          "runs every sandbox in a virtual machine of its own; `host`, `network` and published ports have no effect on it.",
      ),
    host: z
      .string()
      .min(1, "must not be empty")
      .optional()
      .describe(
        "The engine's address, such as unix:///var/run/docker.sock. Default: $DOCKER_HOST, the chosen Docker context, then the usual " +
          "sockets of Docker and Podman.",
      ),
    image: z
      .string()
      .min(1, "must not be empty")
      .default(DOCKER_DEFAULTS.image)
      .describe("The image of blueprints that name none. Any that has /bin/sh."),
    runtime: z
      .string()
      .min(1, "must not be empty")
      .optional()
      .describe(
        "A runtime that the engine knows by this name, such as runsc (gVisor) or kata. Default: the engine's own. `aio` (experimental): the engine's own, " +
          "and images that have a server of their own which speaks the AIO HTTP API, instead of Sandlot's daemon.",
      ),
    transport: z
      .enum(["auto", "socket", "port"])
      .default(DOCKER_DEFAULTS.transport)
      .describe(
        "How daemons are reached. `socket`: through a directory that the engine's containers share with this process. `port`: through a " +
          "port that the engine publishes. `auto`: a socket where the engine can share one, otherwise a port.",
      ),
    network: z
      .string()
      .min(1, "must not be empty")
      .optional()
      .describe(
        "A network of the engine that sandboxes with a published port join. Sandlot does not guard its destinations: keep it " +
          "from the host, from private networks and from metadata addresses. Without it nothing is published.",
      ),
    publishBind: z
      .string()
      .min(1, "must not be empty")
      .default(DOCKER_DEFAULTS.publishBind)
      .describe("The address of the engine's host that ports are published on."),
    publishHost: z
      .string()
      .min(1, "must not be empty")
      .default(DOCKER_DEFAULTS.publishHost)
      .describe(
        "Where this process reaches published ports; another than `publishBind` when it runs in a container itself.",
      ),
    hostPaths: z
      .record(absolutePath, absolutePath)
      .default({})
      .describe(
        "Directories as this process sees them, and as the engine does: for a fleet that runs in a container of the engine, or on another " +
          "machine that shares them. When there are any, only paths in them can be mounted.",
      ),
    uid: accountId
      .default(DOCKER_DEFAULTS.uid)
      .describe(
        "The account that workspaces of a root fleet belong to on disk. Sandboxes run as accounts of `accountIds`, or as this one " +
          "where the engine maps users itself. An ordinary user's fleet runs sandboxes as itself.",
      ),
    gid: accountId.default(DOCKER_DEFAULTS.gid).describe("The group that goes with `uid`."),
    tmpBytes: size.default(DOCKER_DEFAULTS.tmpBytes).describe("Size of a sandbox's private /tmp, which is in memory."),
    homeBytes: size
      .default(DOCKER_DEFAULTS.homeBytes)
      .describe("Size of a temporary home (`home: temporary`), which is in memory."),
    readOnlyRoot: z
      .boolean()
      .default(DOCKER_DEFAULTS.readOnlyRoot)
      .describe("Whether the image's own files cannot be changed. `false` for an image that does not work otherwise."),
    capabilities: z
      .array(z.string().regex(/^[A-Z_]+$/, "must be the name of a capability, such as NET_BIND_SERVICE"))
      .default([])
      .describe("Linux capabilities that the image cannot do without. A sandbox has no others."),
    pauseParked: z
      .boolean()
      .default(DOCKER_DEFAULTS.pauseParked)
      .describe(
        "Whether to pause a sandbox without a lease in which nothing runs. It then costs no processor time; the next lease waits for the engine.",
      ),
    pull: z
      .enum(["missing", "never"])
      .default(DOCKER_DEFAULTS.pull)
      .describe("Whether the engine may fetch an image that it does not have."),
    pullTimeoutMs: durationOverZero("no image is fetched in no time")
      .default(DOCKER_DEFAULTS.pullTimeoutMs)
      .describe("How long fetching an image may take."),
  })
  .prefault({})
  .describe("The docker backend.");

type Completed = z.output<typeof dockerSchema>;

/** The section after validation: `null` stands for a value that is detected or left to the engine. */
export type DockerConfig = Readonly<Omit<Completed, "host" | "runtime" | "network" | "hostPaths" | "capabilities">> & {
  readonly host: string | null;
  /** A runtime of the engine, by name. */
  readonly runtime: string | null;
  /** The engine's network that sandboxes with a published port join; `null`: nothing is published. */
  readonly network: string | null;
  readonly hostPaths: Readonly<Record<string, string>>;
  readonly capabilities: readonly string[];
};

export function dockerConfig(completed: Completed): DockerConfig {
  const { host = null, runtime = null, network = null } = completed;
  return { ...completed, host, runtime, network };
}
