/**
 * DeerFlow's provisioner, with its paths, bodies and status codes, so that `provisioner_url` can name this gateway. The
 * key comes in `X-API-Key`; the user comes in the body, because that client sends no other header.
 */

import {
  type ApiKeyInfo,
  errorBodySchema,
  PROVISIONED_ID_PATTERN,
  parseUserId,
  provisionedEndSchema,
  provisionedListSchema,
  provisionedSchema,
  provisionerCapabilitiesSchema,
  provisionerHealthSchema,
  provisionRequestSchema,
  SandlotError,
  type UserId,
} from "@sandlot/contract";
import type { FastifyRequest } from "fastify";
import { z } from "zod";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { DeerFlowDetail } from "../errors.ts";
import type { Caller } from "../guards/caller.ts";
import type { ProvisionedSandbox } from "../provisioner/provisioned-sandboxes.ts";
import type { Provisioner } from "../provisioner/provisioner.ts";
import { goneSignal } from "../thread-use.ts";
import { THREAD_ERRORS } from "./answers.ts";

const { 401: _unauthorized, ...OTHER_ERRORS } = THREAD_ERRORS;
const ERRORS = {
  ...OTHER_ERRORS,
  400: errorBodySchema.describe("An extra mount that is not allowed, or an id that is another thread's."),
  401: z.string().describe("No key, or none that is valid: the text `Unauthorized`."),
} as const;
const CONFIG = { access: "any", deerflow: true, provisioner: true } as const;
/** An id that no sandbox can have is an unknown one, not a mistake. */
const paramsSchema = z.strictObject({ id: z.string() });
const tags = ["deerflow"];

export function provisionerRoutes(app: GatewayApp, { provisioner, sandboxUrl }: GatewayContext): void {
  if (provisioner === null) return;
  const shown = (request: FastifyRequest, record: ProvisionedSandbox) => ({
    sandbox_id: record.id,
    sandbox_url: sandboxUrl(request, record),
    status: "Running" as const,
  });

  app.get(
    "/health",
    {
      config: { access: "open" },
      schema: { summary: "The provisioner answers", security: [], tags, response: { 200: provisionerHealthSchema } },
    },
    async () => ({ status: "ok" as const }),
  );

  app.get(
    "/api/capabilities",
    {
      config: CONFIG,
      schema: {
        summary: "Which of DeerFlow's images for Lark there are: none",
        tags,
        response: { 200: provisionerCapabilitiesSchema, ...ERRORS },
      },
    },
    async () => ({ lark_cli_init_image: false, lark_cli_broker_image: false }),
  );

  app.post(
    "/api/sandboxes",
    {
      config: { ...CONFIG, purpose: "provision" },
      schema: {
        summary: "A sandbox under an id of the client's, and the URL of its AIO API; asking again is fine",
        description: "The URL has the rights of the key that asks, and ends with the sandbox or with that key.",
        tags,
        body: provisionRequestSchema,
        response: { 200: provisionedSchema, ...ERRORS },
      },
    },
    async (request, reply) => {
      const { sandbox_id: id, thread_id: thread, extra_mounts: mounts, user_id } = request.body;
      const caller = callerOf(request);
      const order = { id, thread: thread ?? null, user: userFor(caller, user_id), mounts: mounts ?? [] };
      return shown(request, await provisioner.create(caller, order, goneSignal(reply)));
    },
  );

  app.get(
    "/api/sandboxes",
    {
      config: CONFIG,
      schema: {
        summary: "The sandboxes that this key has provisioned, or any key of its user",
        tags,
        response: { 200: provisionedListSchema, ...ERRORS },
      },
    },
    async (request) => {
      const found = await provisioner.list(callerOf(request));
      return { sandboxes: found.map((record) => shown(request, record)), count: found.length };
    },
  );

  app.get(
    "/api/sandboxes/:id",
    {
      config: CONFIG,
      schema: {
        summary: "One provisioned sandbox, while it lives",
        tags,
        params: paramsSchema,
        response: { 200: provisionedSchema, ...ERRORS },
      },
    },
    async (request) => shown(request, await provisioner.find(callerOf(request), request.params.id)),
  );

  app.delete(
    "/api/sandboxes/:id",
    {
      config: { ...CONFIG, purpose: "provision" },
      schema: {
        summary: "End a provisioned sandbox, also while it is used; asking again is fine",
        tags,
        params: paramsSchema,
        response: { 200: provisionedEndSchema, ...ERRORS },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const stopped =
        !PROVISIONED_ID_PATTERN.test(id) || (await removed(provisioner, callerOf(request), id, goneSignal(reply)));
      return { ok: true as const, sandbox_id: id, stopped };
    },
  );
}

async function removed(provisioner: Provisioner, caller: Caller, id: string, signal: AbortSignal): Promise<boolean> {
  try {
    return await provisioner.remove(caller, id, signal);
  } catch (error) {
    if (!(error instanceof SandlotError)) throw error;
    const cause = new DeerFlowDetail(`Partial cleanup: ${error.message}`);
    throw new SandlotError(error.code, error.details, { cause });
  }
}

function callerOf({ caller }: FastifyRequest): Caller {
  if (caller === null) throw new SandlotError("unauthorized", { problem: "no key was sent" });
  return caller;
}

/** A user's key acts for its own user, and so does one that named a user in the header. */
function userFor(
  { user }: { readonly user: Caller["user"]; readonly scope: ApiKeyInfo["scope"] },
  named: string,
): UserId {
  if (user === null || user === named) return parseUserId(named);
  throw new SandlotError("forbidden", { problem: `this key acts for ${user}, and the request names ${named}` });
}
