/** Links to an agent's server on a port. They lead to the previews' own listener and origin, never to this one. */

import { portLinkRequestSchema, portLinkSchema, portParamsSchema, SandlotError } from "@sandlot/contract";
import { type GatewaySettings, previewScheme } from "../../config/gateway-settings.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { keyIdOf } from "../guards/caller.ts";
import { originOf } from "../guards/web-pages.ts";
import { LINK_HEADER, LINK_PARAMETER } from "../previews/links.ts";
import { threadOf } from "../thread-use.ts";
import { THREAD_ERRORS } from "./answers.ts";

export function portRoutes(app: GatewayApp, context: GatewayContext): void {
  const { fleet, links, threads, world, previewAddress, settings } = context;
  app.post(
    "/v1/threads/:thread/ports/:port/links",
    {
      config: { access: "thread", purpose: "port link" },
      schema: {
        summary: "A signed link to a port, for a while",
        description: "It has the rights of the key that asks, ends with that key, and leads to a thread that exists.",
        tags: ["ports"],
        params: portParamsSchema,
        body: portLinkRequestSchema.nullish(),
        response: { 201: portLinkSchema, ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const { ttlMs, frame } = portLinkRequestSchema.parse(request.body ?? {});
      const key = threadOf(request);
      const { port } = request.params;
      await threads.existing(key);
      const expiresAt = world.wallMs() + ttlMs;
      if (frame && !framesWork(settings))
        throw new SandlotError("invalid_request", {
          field: "frame",
          problem: "browsers keep a cookie in a frame only over https, or below the domain localhost (gateway.preview)",
        });
      const framing = frame ? { framedBy: originOf(request) } : {};
      const token = links.sign({ ...key, port, keyId: keyIdOf(request), expiresAt, ...framing });
      fleet.timeline.note(key, { kind: "preview", what: "opened", facts: { port } });
      const origin = previewAddress(links.labelOf(key, port));
      const direct = { url: resolvable(origin), headers: { [LINK_HEADER]: token } };
      return reply.code(201).send({ url: `${origin}/?${LINK_PARAMETER}=${token}`, direct, expiresAt });
    },
  );
}

/** A partitioned cookie has to be secure. Browsers take `localhost` for secure without TLS. */
function framesWork(settings: GatewaySettings): boolean {
  const { domain } = settings.preview;
  return previewScheme(settings) === "https" || domain === "localhost" || domain.endsWith(".localhost");
}

/** Browsers resolve names below `localhost`, most programs do not. A certificate needs its name. */
export function resolvable(origin: string): string {
  return origin.replace(/^http:\/\/[^/:]*\.localhost(?=:|$)/, "http://127.0.0.1");
}
