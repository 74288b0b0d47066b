/** Keys: an operator creates, lists and revokes them; every key may read its own entry. */

import { apiKeyInfoSchema, keyListSchema, keyRequestSchema, newKeySchema, SandlotError } from "@sandlot/contract";
import { z } from "zod";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { OPERATOR_ERRORS } from "./answers.ts";

const keyParamsSchema = z.strictObject({ id: z.string().regex(/^[0-9a-f]{12}$/) });

export function keyRoutes(app: GatewayApp, { keys }: GatewayContext): void {
  app.get(
    "/v1/key",
    {
      config: { access: "any" },
      schema: {
        summary: "The key that asks: its scope, user and blueprints",
        tags: ["keys"],
        response: { 200: apiKeyInfoSchema, ...OPERATOR_ERRORS },
      },
    },
    async ({ caller }) => {
      const own = caller === null ? null : await keys.find(caller.keyId);
      if (own === null) throw new SandlotError("unauthorized", { problem: "the key is not valid" });
      return apiKeyInfoSchema.parse(own);
    },
  );

  app.get(
    "/v1/keys",
    {
      config: { access: "operator" },
      schema: {
        summary: "Keys, never their values",
        tags: ["keys"],
        response: { 200: keyListSchema, ...OPERATOR_ERRORS },
      },
    },
    async () => ({ keys: [...(await keys.list())] }),
  );

  app.post(
    "/v1/keys",
    {
      config: { access: "operator" },
      schema: {
        summary: "Make a key; it is shown this once",
        tags: ["keys"],
        body: keyRequestSchema,
        response: { 201: newKeySchema, ...OPERATOR_ERRORS },
      },
    },
    async ({ body: { scope, user, label, blueprints, ttlMs } }, reply) => {
      const made = await keys.create({
        scope,
        ...(user === undefined ? {} : { user }),
        ...(label === undefined ? {} : { label }),
        ...(blueprints === undefined ? {} : { blueprints }),
        ...(ttlMs === undefined ? {} : { ttlMs }),
      });
      return reply.code(201).send(made);
    },
  );

  app.delete(
    "/v1/keys/:id",
    {
      config: { access: "operator" },
      schema: {
        summary: "End a key; it stops working within a second",
        tags: ["keys"],
        params: keyParamsSchema,
        response: { 204: z.null(), ...OPERATOR_ERRORS },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      if (!(await keys.revoke(id))) throw new SandlotError("key_not_found", { id });
      return reply.code(204).send(null);
    },
  );
}
