/**
 * DeerFlow's provisioner contract, as its own client uses it: create, look at, list and end sandboxes by an id that the
 * client chooses. Spelling and status words are DeerFlow's.
 *
 * Requests may have more fields than these, which are ignored, as DeerFlow's own service does.
 */

import { z } from "zod";

/** Also the name of the thread where a request names none. */
export const PROVISIONED_ID_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;

export const extraMountSchema = z
  .object({
    host_path: z.string().describe("Below the base directory of the gateway's configuration."),
    container_path: z.string().describe("One of the seven places that DeerFlow mounts."),
    read_only: z.boolean().default(false),
  })
  .meta({ id: "ExtraMount" });

export type ExtraMount = z.infer<typeof extraMountSchema>;

export const provisionRequestSchema = z
  .object({
    sandbox_id: z.string().regex(PROVISIONED_ID_PATTERN).describe("Asking again with the same id is fine."),
    thread_id: z
      .string()
      .regex(PROVISIONED_ID_PATTERN)
      .nullish()
      .describe("Without one the thread is named by the id, and its files go with the sandbox."),
    user_id: z
      .string()
      .regex(/^[A-Za-z0-9_-]{1,128}$/)
      .default("default"),
    // Far above what is accepted: the limit keeps a long list of wrong entries from being judged one by one.
    extra_mounts: z.array(extraMountSchema).max(100).nullish(),
    include_legacy_skills: z.boolean().default(false).describe("Ignored."),
    provision_lark_cli_runtime: z.boolean().default(false).describe("Ignored: see the capabilities."),
    provision_lark_cli_broker: z.boolean().default(false).describe("Ignored: see the capabilities."),
  })
  .meta({ id: "ProvisionRequest" });

export type ProvisionRequest = z.infer<typeof provisionRequestSchema>;

/** The words of DeerFlow's service. A gateway answers `Running`, and 404 for a sandbox that has ended. */
export const PROVISIONED_STATUSES = ["Pending", "Running", "Succeeded", "Failed", "Unknown", "NotFound"] as const;

export const provisionedSchema = z
  .object({
    sandbox_id: z.string(),
    sandbox_url: z.string().describe("The base URL of its AIO API. It is the only credential: keep it secret."),
    status: z.enum(PROVISIONED_STATUSES),
  })
  .meta({ id: "ProvisionedSandbox" });

export const provisionedListSchema = z
  .object({ sandboxes: z.array(provisionedSchema), count: z.int().min(0) })
  .meta({ id: "ProvisionedSandboxList" });

export const provisionedEndSchema = z
  .object({
    ok: z.literal(true),
    sandbox_id: z.string(),
    stopped: z
      .boolean()
      .optional()
      .describe("False: it is ending, and the engine has not confirmed it yet. Asking again tells."),
  })
  .meta({ id: "ProvisionedSandboxEnd" });

export const provisionerCapabilitiesSchema = z
  .object({ lark_cli_init_image: z.boolean(), lark_cli_broker_image: z.boolean() })
  .meta({ id: "ProvisionerCapabilities" });

export const provisionerHealthSchema = z.object({ status: z.literal("ok") }).meta({ id: "ProvisionerHealth" });
