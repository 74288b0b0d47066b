/**
 * What each backend can be told in a configuration, beside what all of them understand.
 */

import { z } from "zod";
import { durationOverZero, size } from "./amounts.ts";
import { DEFAULTS } from "./defaults.ts";

const accountId = z
  .int()
  .min(1, "must not be 0: a sandbox never runs as the host's root")
  .max(4_294_967_294, "must be the number of an account");

/** Small enough that nothing takes an id for a negative number. */
const ID_MAX = 2_147_483_646;

export const accountIdsSchema = z
  .strictObject({
    first: z
      .int()
      .min(1, "must not be 0: a sandbox never runs as the host's root")
      .max(ID_MAX, "must be below 2147483647")
      .describe("The first id."),
    count: z
      .int()
      .min(2, "must be at least 2: a sandbox takes two ids")
      .max(ID_MAX, "must be below 2147483647")
      .describe("How many ids there are from `first` on."),
  })
  .refine(({ first, count }) => first + count - 1 <= ID_MAX, "must end below 2147483647")
  .describe(
    "The ids that sandboxes of a root fleet run as, two for each: one for what runs inside, one for what carries its network. " +
      "All fleets of one home share them, and no other home may have any of them. Default: a range that no other home has.",
  );

export const localSchema = z
  .strictObject({
    isolation: z
      .enum(["bubblewrap", "unsafe-process"])
      .default(DEFAULTS.local.isolation)
      .describe(
        "`bubblewrap`: namespaces, seccomp, no capabilities. `unsafe-process`: plain processes of this machine that can see " +
          "everything their account can; no security boundary, for machines without namespaces.",
      ),
    uid: accountId
      .default(DEFAULTS.local.uid)
      .describe(
        "The account that workspaces of a root fleet belong to on disk. Sandboxes run as accounts of `accountIds` and see them as " +
          "their own. An ordinary user's fleet runs sandboxes as itself.",
      ),
    gid: accountId.default(DEFAULTS.local.gid).describe("The group that goes with `uid`."),
    tmpBytes: size.default(DEFAULTS.local.tmpBytes).describe("Size of a sandbox's private /tmp, which is in memory."),
    homeBytes: size
      .default(DEFAULTS.local.homeBytes)
      .describe("Size of a sandbox's private /home, which is in memory."),
  })
  .prefault({})
  .describe("The local backend.");

const absolutePath = z.string().regex(/^\/[^\0]*$/, "must be an absolute path");

export const dockerSchema = z
  .strictObject({
    engine: z
      .enum(["docker", "apple-container"])
      .default(DEFAULTS.docker.engine)
      .describe(
        "`docker`: whatever speaks Docker's API, Podman included. `apple-container`: Apple's `container` program on macOS, which runs " +
          "every sandbox in a virtual machine of its own; `host`, `network` and published ports mean nothing to it.",
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
      .default(DEFAULTS.docker.image)
      .describe("The image of blueprints that name none. Any that has /bin/sh."),
    runtime: z
      .string()
      .min(1, "must not be empty")
      .optional()
      .describe(
        "A runtime that the engine knows by this name, such as runsc (gVisor) or kata. Default: the engine's own. `aio`: the engine's own, " +
          "and images that have a server of their own which speaks the AIO HTTP API, instead of Sandlot's daemon.",
      ),
    transport: z
      .enum(["auto", "socket", "port"])
      .default(DEFAULTS.docker.transport)
      .describe(
        "How daemons are reached. `socket`: through a directory that the engine's containers share with this process. `port`: through a " +
          "port that the engine publishes. `auto`: a socket where the engine can share one, otherwise a port.",
      ),
    network: z
      .string()
      .min(1, "must not be empty")
      .optional()
      .describe(
        "A network of the engine's that sandboxes with a published port join. Sandlot does not guard what can be reached from it: keep it " +
          "from the host, from private networks and from metadata addresses. Without it nothing is published.",
      ),
    publishBind: z
      .string()
      .min(1, "must not be empty")
      .default(DEFAULTS.docker.publishBind)
      .describe("The address of the engine's host that ports are published on."),
    publishHost: z
      .string()
      .min(1, "must not be empty")
      .default(DEFAULTS.docker.publishHost)
      .describe(
        "Where this process reaches published ports; another than `publishBind` when it runs in a container itself.",
      ),
    hostPaths: z
      .record(absolutePath, absolutePath)
      .default({})
      .describe(
        "Directories as this process sees them, and as the engine does: for a fleet that runs in a container of the engine, or on another " +
          "machine that shares them. When there are any, only what lies in them can be mounted.",
      ),
    uid: accountId
      .default(DEFAULTS.docker.uid)
      .describe(
        "The account that workspaces of a root fleet belong to on disk. Sandboxes run as accounts of `accountIds`, or as this one " +
          "where the engine maps users itself. An ordinary user's fleet runs sandboxes as itself.",
      ),
    gid: accountId.default(DEFAULTS.docker.gid).describe("The group that goes with `uid`."),
    tmpBytes: size.default(DEFAULTS.docker.tmpBytes).describe("Size of a sandbox's private /tmp, which is in memory."),
    homeBytes: size
      .default(DEFAULTS.docker.homeBytes)
      .describe("Size of a sandbox's private /home, which is in memory."),
    readOnlyRoot: z
      .boolean()
      .default(DEFAULTS.docker.readOnlyRoot)
      .describe("Whether the image's own files cannot be changed. `false` for an image that does not work otherwise."),
    capabilities: z
      .array(z.string().regex(/^[A-Z_]+$/, "must be the name of a capability, such as NET_BIND_SERVICE"))
      .default([])
      .describe("Linux capabilities that the image cannot do without. A sandbox has no others."),
    pauseParked: z
      .boolean()
      .default(DEFAULTS.docker.pauseParked)
      .describe(
        "Whether a sandbox that nobody has leased, and in which nothing runs, is paused. It then costs no processor; the next lease waits for the engine.",
      ),
    pull: z
      .enum(["missing", "never"])
      .default(DEFAULTS.docker.pull)
      .describe("Whether the engine may fetch an image that it does not have."),
    pullTimeoutMs: durationOverZero("no image is fetched in no time")
      .default(DEFAULTS.docker.pullTimeoutMs)
      .describe("How long fetching an image may take."),
  })
  .prefault({})
  .describe("The docker backend.");
