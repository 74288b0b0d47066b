/** The section `remote` of a configuration. */

import { z } from "zod";
import { durationOverZero } from "../../backend/config/amounts.ts";

/** The key of the provisioner, where no file is named. */
export const KEY_VARIABLE = "SANDLOT_PROVISIONER_KEY";

const REMOTE_DEFAULTS = {
  user: "default",
  /** As long as DeerFlow's own client waits. */
  readyTimeoutMs: 60_000,
} as const;

export const remoteSchema = z
  .strictObject({
    url: z
      .url({ protocol: /^https?$/, error: "must be an http or https URL" })
      .optional()
      .describe("The provisioner: another Sandlot gateway, or DeerFlow's service. Required for this backend."),
    keyFile: z
      .string()
      .min(1, "must not be empty")
      .optional()
      .describe(`A file with the key for \`X-API-Key\`. Default: the environment variable ${KEY_VARIABLE}.`),
    plainHttp: z
      .boolean()
      .default(false)
      .describe("Allow http beyond loopback: key, commands and files then cross the network in the clear."),
    user: z
      .string()
      .regex(/^[A-Za-z0-9_-]{1,128}$/, "has 1 to 128 letters, digits, underscores or hyphens")
      .default(REMOTE_DEFAULTS.user)
      .describe("The user that sandboxes belong to at the provisioner. A user's key of a gateway needs that user."),
    sandboxHosts: z
      .array(z.string().min(1, "must not be empty"))
      .default([])
      .describe(
        "Hosts, beside the provisioner's own, that the URL of a sandbox may name; with `*.` in front, every name below. " +
          "DeerFlow's service names its nodes, or `*.deer-flow.svc.cluster.local`.",
      ),
    readyTimeoutMs: durationOverZero("no server is ready in no time")
      .default(REMOTE_DEFAULTS.readyTimeoutMs)
      .describe("How long a new sandbox may take until its AIO API answers."),
  })
  .prefault({})
  .describe("The remote backend.");

export type RemoteConfig = Readonly<z.output<typeof remoteSchema>>;
