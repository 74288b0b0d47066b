/**
 * The configuration a user writes: one strict, described schema. It checks configuration files, `sandlot config schema`
 * prints it as JSON Schema, and the type of `openFleet`'s argument is generated from it (`fleet-config.ts`). So these
 * three cannot disagree.
 *
 * Invariants
 * - Every key is optional and described. Defaults come from `defaults.ts` and are visible in the JSON Schema.
 * - Objects are strict: an unknown key is an error at every depth.
 * - A mistake in one value is refused here, with a reason. Mistakes that depend on several values, the file system or
 *   the environment are found by `resolve-settings.ts`.
 */

import { ENV_NAME_PATTERN, HOME_MODES, USER_ID_PATTERN } from "@sandlot/contract";
import { z } from "zod";
import { accountIdsSchema } from "../backend/config/account-ids.ts";
import { COUNT_MAX, count, describeWritten, durationOrOff, durationOverZero, size } from "../backend/config/amounts.ts";
import { podSettingsSchema } from "../backend/pod-settings.ts";
import { blueprintCheckpointsSchema, checkpointsSchema } from "./checkpoints-schema.ts";
import { UNLIMITED } from "./default-limits.ts";
import { DEFAULTS } from "./defaults.ts";
import { environmentsSchema } from "./environments-schema.ts";
import { gatewayConfigSchema } from "./gateway-settings.ts";
import { networkSchema, setupSchema } from "./network-schema.ts";
import {
  type BackendName,
  REGISTRY,
  type Registry,
  type SectionSchemas,
  type StoreKeys,
  type StoreSettings,
} from "./registry.ts";

/** Valid as a label on every engine. Kubernetes is the strictest: lower case, no underscore. */
export const FLEET_ID_PATTERN = /^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$/;
/** A blueprint's name is a key in files and a word in messages. */
const BLUEPRINT_NAME_PATTERN = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/;
const limitsSchema = z
  .strictObject({
    mode: z
      .enum(["hard", "soft"])
      .default(DEFAULTS.limits.mode)
      .describe(
        "`hard` is never exceeded, across processes. `soft` evicts what it can, otherwise goes over and says so.",
      ),
    max: count
      .min(1, "must be at least 1: a fleet without room serves no request")
      .default(DEFAULTS.limits.max)
      .describe("How many sandboxes the fleet may have, in any state."),
    maxPerUser: count
      .min(0, "must not be negative; 0 means no limit per user")
      .default(DEFAULTS.limits.maxPerUser)
      .describe("How many of them one user may have. 0: no limit per user."),
    maxPerEngine: count
      .min(0, "must not be negative; 0 means no limit per engine")
      .default(DEFAULTS.limits.maxPerEngine)
      .describe(
        "How many of them one engine may have, where hosts with different engines share a store. 0: no limit per engine.",
      ),
    users: z
      .record(
        z.string().regex(USER_ID_PATTERN, "the name of a user has 1 to 128 letters, digits, underscores or hyphens"),
        z.strictObject({
          max: count
            .min(0, "must not be negative; 0 means no limit for this user")
            .describe("How many sandboxes this user may have. 0: no limit for this user."),
        }),
      )
      .optional()
      .describe("Users with a limit of their own, by name, instead of `maxPerUser`."),
    queueMax: count
      .min(0, "must not be negative; 0 means that no acquire waits")
      .default(DEFAULTS.limits.queueMax)
      .describe("How many acquires may wait for room at once. 0: none waits."),
    onFull: z
      .enum(["wait", "reject"])
      .default(DEFAULTS.limits.onFull)
      .describe("Whether an acquire that finds no room waits in the queue or is refused at once."),
  })
  .prefault({})
  .describe("How much the fleet may use.");

const mountSchema = z
  .strictObject({
    hostPath: z.string().min(1, "must not be empty").optional().describe("An absolute path on the host."),
    volume: z
      .string()
      .min(1, "must not be empty")
      .optional()
      .describe("In place of `hostPath`: the name of a volume that the backend's section defines."),
    sandboxPath: z.string().min(1, "must not be empty").describe("An absolute path inside the sandbox."),
    readOnly: z.boolean().default(DEFAULTS.mount.readOnly).describe("Whether the sandbox may only read it."),
  })
  .describe("A host directory that sandboxes see.");

/** An absent key has a limit that fits the machine (`default-limits.ts`). */
const orUnlimited = <T extends z.ZodType>(limit: T, what: string) =>
  z.union([z.literal(UNLIMITED), limit], { error: `must be ${what}, or "${UNLIMITED}"` }).optional();
const amount = orUnlimited(z.int().min(1, `must be a whole number from 1, or "${UNLIMITED}"`), "a whole number from 1");
const sizeLimit = orUnlimited(size, "a size of at least 1 byte such as 512MiB, 2GiB or 500MB");

const blueprintSchema = z
  .strictObject({
    image: z.string().min(1, "must not be empty").optional().describe("The image, for an engine that has images."),
    runtime: z
      .string()
      .min(1, "must not be empty")
      .optional()
      .describe(
        "The engine's runtime for isolation, by its name, such as runsc (gVisor) or kata. Default: `docker.runtime`.",
      ),
    environment: z
      .record(
        z.string().regex(ENV_NAME_PATTERN, "the name of a variable has letters, digits and underscores only"),
        z.string(),
      )
      .default({})
      .describe(
        "Environment variables of every command. `$NAME` in a value (or NAME in braces after the `$`, where a letter or digit follows) " +
          "is taken from Sandlot's own environment; `$$` is a dollar sign.",
      ),
    home: z
      .enum(HOME_MODES)
      .default("kept")
      .describe(
        "The home directory. `kept`: `/mnt/user-data/.home`, which stays with the thread's files, with installed programs and dotfiles. " +
          "`temporary`: in memory, new in every sandbox.",
      ),
    limits: z
      .strictObject({
        memoryBytes: sizeLimit.describe("Memory of one sandbox."),
        cpuCount: z
          .number()
          .positive("must be more than 0; leave the key out for no limit")
          .optional()
          .describe("Processors of one sandbox; 0.5 is half of one. Default: no limit but `cpuWeight`."),
        cpuWeight: z
          .int()
          .min(1, "must be from 1 to 10000")
          .max(10_000, "must be from 1 to 10000")
          .optional()
          .describe("Its share of the processors when they are busy; an ordinary service has 100."),
        pidsMax: amount.describe("Processes and threads of one sandbox."),
        diskBytes: sizeLimit.describe(
          "Disk space of the workspace. The fleet watches it; where the file system has project quotas (experimental), the kernel enforces it.",
        ),
        filesMax: amount.describe("Files and directories in the workspace."),
      })
      .prefault({})
      .describe(
        "What one sandbox may use. A key that is left out has a default that fits the machine (`sandlot config check` prints it); " +
          `"${UNLIMITED}" is no limit.`,
      ),
    mounts: z.array(mountSchema).default([]).describe("Host directories that sandboxes see."),
    pod: podSettingsSchema.optional(),
    setup: setupSchema.optional(),
    checkpoints: blueprintCheckpointsSchema.optional(),
    network: networkSchema,
  })
  .describe("What a sandbox is made from.");

const blueprintName = z
  .string()
  .regex(BLUEPRINT_NAME_PATTERN, "the name of a blueprint has 1 to 64 letters, digits, dots, underscores or hyphens");

/** The schema for what is registered. Its type is that of the fleet's own registry; another registry is for tests. */
export function configSchemaOf({ backends, stores }: Registry) {
  return z
    .strictObject({
      home: z
        .string()
        .optional()
        .describe(
          "All state of this fleet on this machine. Default: $SANDLOT_HOME, else sandlot in the XDG state directory.",
        ),
      fleetId: z
        .string()
        .regex(FLEET_ID_PATTERN, "must be 1 to 40 lower-case letters, digits or hyphens, with no hyphen at either end")
        .optional()
        .describe("Two fleets on one engine never touch each other's sandboxes. Default: a hash of `home`."),
      backend: z
        .enum(namesOf<BackendName>(backends))
        .default(DEFAULTS.backend)
        .describe(`The engine that sandboxes live on. ${aboutAll(backends)}`),
      ...sectionSchemas(backends),
      skills: z
        .strictObject({
          hostPath: z.string().min(1, "must not be empty").describe("A directory on the host, mounted read-only."),
        })
        .optional()
        .describe("The directory that every sandbox sees, read-only, at /mnt/skills."),
      store: z
        .strictObject({
          type: z.enum(namesOf<StoreSettings["type"]>(stores)).default(DEFAULTS.store.type).describe(aboutAll(stores)),
          ...storeKeys(stores),
        })
        .prefault({})
        .describe("Where the fleet records which sandboxes exist and who holds them."),
      blueprints: z
        .record(blueprintName, blueprintSchema)
        .default({})
        .describe(
          "What sandboxes are made from, by name. An acquire that names none uses `default`, which always exists.",
        ),
      pool: z
        .record(blueprintName, count.min(0, "must not be negative; 0 keeps none ready"))
        .default({})
        .describe("How many blank sandboxes to keep ready, by blueprint."),
      limits: limitsSchema,
      accountIds: accountIdsSchema.optional(),
      idleTimeoutMs: durationOrOff("never")
        .default(DEFAULTS.idleTimeoutMs)
        .describe("A sandbox without a lease and without work ends after this long. 0: never."),
      maxLifetimeMs: durationOrOff("no limit")
        .default(DEFAULTS.maxLifetimeMs)
        .describe("A sandbox takes no new leases after this long, and ends with its last one. 0: no limit."),
      orphanTimeoutMs: durationOverZero("a sandbox that a peer has just made would count as left over")
        .default(DEFAULTS.orphanTimeoutMs)
        .describe("How long an object without a record may stay in the engine."),
      acquireTimeoutMs: durationOverZero(
        "an acquire that may not take any time always fails, and one without a limit can hang",
      )
        .default(DEFAULTS.acquireTimeoutMs)
        .describe("How long an acquire may take, all steps together."),
      sessionLifetimeMs: durationOverZero("every process would be taken for dead")
        .default(DEFAULTS.sessionLifetimeMs)
        .describe(
          "A process that has not renewed its session for this long is dead, and others take over what it held. " +
            "One that is known to run on the same host is given four times as long.",
        ),
      stopTimeoutMs: durationOverZero("no engine confirms a stop in no time")
        .default(DEFAULTS.stopTimeoutMs)
        .describe("How long the engine may take to confirm a stop before it is asked again."),
      housekeepingIntervalMs: durationOverZero("housekeeping would never rest")
        .default(DEFAULTS.housekeepingIntervalMs)
        .describe(
          "How often each housekeeping task looks. At most a third of `sessionLifetimeMs`; sessions are renewed by themselves.",
        ),
      autoRestart: z
        .boolean()
        .default(DEFAULTS.autoRestart)
        .describe("Whether the next use after a crash gets a new sandbox with the old workspace."),
      checkpoints: checkpointsSchema,
      environments: environmentsSchema,
      timeline: z
        .strictObject({
          enabled: z
            .boolean()
            .default(DEFAULTS.timeline.enabled)
            .describe("Whether a log of what happened is kept for each thread: commands, leases, crashes and more."),
        })
        .prefault({})
        .describe("The timelines of threads."),
      leakDetection: z
        .strictObject({
          afterMs: durationOrOff("off")
            .default(DEFAULTS.leakDetection.afterMs)
            .describe("Report a lease that was not used for this long. 0: off."),
          captureStacks: z
            .boolean()
            .default(DEFAULTS.leakDetection.captureStacks)
            .describe("Keep the stack of each acquire for that report. Costs several times the acquire itself."),
        })
        .prefault({})
        .describe("Finding leases that a caller forgot to release."),
      activity: z
        .strictObject({
          cpuShareMin: z
            .number()
            .positive("must be more than 0: every sandbox uses at least that, so none would ever be idle")
            .max(COUNT_MAX, `must be at most ${COUNT_MAX}`)
            .default(DEFAULTS.activity.cpuShareMin)
            .describe("A sandbox that uses at least this share of one processor is at work."),
          previewQuietMs: durationOrOff("that preview traffic does not count")
            .default(DEFAULTS.activity.previewQuietMs)
            .describe("A preview request counts as work for this long. 0: not at all."),
        })
        .prefault({})
        .describe("What counts as work inside a sandbox without a lease."),
    })
    .describe("Configuration of a Sandlot fleet. Every key is optional.");
}

export const fleetConfigSchema = configSchemaOf(REGISTRY);

function sectionSchemas(backends: Registry["backends"]): SectionSchemas {
  const sections = Object.values(backends).flatMap(({ name, configSchema }) =>
    configSchema === null ? [] : [[name, configSchema]],
  );
  return Object.fromEntries(sections) as SectionSchemas;
}

function storeKeys(stores: Registry["stores"]): StoreKeys {
  return Object.assign({}, ...Object.values(stores).map(({ keys }) => keys)) as StoreKeys;
}

function namesOf<Name extends string>(entries: Readonly<Record<string, { readonly name: string }>>): readonly Name[] {
  return Object.values(entries).map(({ name }) => name) as readonly string[] as readonly Name[];
}

function aboutAll(entries: Readonly<Record<string, { readonly name: string; readonly about: string }>>): string {
  return Object.values(entries)
    .map(({ name, about }) => `\`${name}\`: ${about}.`)
    .join(" ");
}

/** The user's configuration with defaults filled in, before relations are checked and paths are resolved. */
export type CompletedConfig = z.output<typeof fleetConfigSchema>;
export type CompletedBlueprint = z.output<typeof blueprintSchema>;

/** The schema in the form for editors and other languages. */
export function fleetConfigJsonSchema(): Record<string, unknown> {
  const file = fleetConfigSchema.extend({ gateway: gatewayConfigSchema.optional() });
  return {
    ...z.toJSONSchema(file, { io: "input", unrepresentable: "any", override: describeWritten }),
    title: "Sandlot configuration",
  };
}
