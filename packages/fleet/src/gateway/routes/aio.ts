/**
 * AIO URLs: the AIO API of a thread's sandbox for clients that can send neither a key nor a cookie, such as DeerFlow's.
 * They lead to the previews' listener, never to this one.
 */

import {
  AIO_TUNNEL_PORT,
  aioLinkParamsSchema,
  aioRevokedSchema,
  aioUrlRequestSchema,
  aioUrlSchema,
  threadParamsSchema,
} from "@sandlot/contract";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { keyIdOf } from "../guards/caller.ts";
import { aioPath } from "../previews/aio-links.ts";
import { threadOf } from "../thread-use.ts";
import { THREAD_ERRORS } from "./answers.ts";
import { resolvable } from "./ports.ts";

export function aioRoutes(app: GatewayApp, { fleet, links, aioLinks, threads, previewAddress }: GatewayContext): void {
  app.post(
    "/v1/threads/:thread/aio",
    {
      config: { access: "thread", purpose: "AIO URL" },
      schema: {
        summary: "A secret base URL of the sandbox's AIO API, for a client without a key",
        description: "It has the rights of the key that asks, and ends with that key. A thread that is new is made.",
        tags: ["ports"],
        params: threadParamsSchema,
        body: aioUrlRequestSchema.nullish(),
        response: { 201: aioUrlSchema, ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const { ttlMs } = aioUrlRequestSchema.parse(request.body ?? {});
      const key = threadOf(request);
      // A URL leads to this gateway's previews, so it has to be one that reaches the thread.
      await fleet.locate({ user: key.user, thread: key.thread });
      // A URL creates no thread; otherwise it would bring back a purged one.
      if ((await fleet.findThread({ user: key.user, thread: key.thread })) === null)
        await threads.with(request, reply, async () => undefined);
      const { linkId, secret, expiresAt } = await aioLinks.create(key, keyIdOf(request), ttlMs);
      const origin = resolvable(previewAddress(links.labelOf(key, AIO_TUNNEL_PORT)));
      return reply.code(201).send({ url: `${origin}${aioPath(linkId, secret)}`, linkId, expiresAt });
    },
  );

  app.delete(
    "/v1/threads/:thread/aio",
    {
      config: { access: "thread", purpose: "AIO URL" },
      schema: {
        summary: "Revoke every AIO URL of the thread; asking again is fine",
        tags: ["ports"],
        params: threadParamsSchema,
        response: { 200: aioRevokedSchema, ...THREAD_ERRORS },
      },
    },
    async (request) => ({ revoked: await aioLinks.revoke(threadOf(request)) }),
  );

  app.delete(
    "/v1/threads/:thread/aio/:linkId",
    {
      config: { access: "thread", purpose: "AIO URL" },
      schema: {
        summary: "Revoke one AIO URL; asking again is fine",
        tags: ["ports"],
        params: aioLinkParamsSchema,
        response: { 200: aioRevokedSchema, ...THREAD_ERRORS },
      },
    },
    async (request) => ({ revoked: await aioLinks.revoke(threadOf(request), request.params.linkId) }),
  );
}
