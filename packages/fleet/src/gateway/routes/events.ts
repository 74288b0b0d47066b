/**
 * What happens in the fleet, as it happens. Where gateways share a store, a stream has the events of all instances that
 * this gateway reaches, and names the others.
 */

import { z } from "zod";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { isVisibleTo, type LogItem } from "../events/event-log.ts";
import { ownerOf } from "../guards/caller.ts";
import { SseStream } from "../streams/sse.ts";
import { OPERATOR_ERRORS } from "./answers.ts";

const querySchema = z.strictObject({
  after: z.string().max(64).optional(),
  own: z
    .enum(["true", "false"])
    .default("false")
    .transform((text) => text === "true")
    .describe("Only events of this gateway's own instance."),
});

export function eventRoutes(app: GatewayApp, context: GatewayContext): void {
  const { events, peerEvents, draining } = context;
  app.get(
    "/v1/events",
    {
      config: { access: "owned", peers: "events" },
      schema: {
        summary: "What happens to the user's sandboxes, or in the whole fleet for an operator, as it happens",
        description:
          "`Last-Event-ID` (or `after`) goes on where a reader was, at the gateway that sent it. `gap`: some were missed, " +
          "also when resuming at another gateway. `partial`: events of the named `instances` do not come from here on.",
        tags: ["sandboxes"],
        querystring: querySchema,
        response: { 200: z.any().describe("Events."), ...OPERATOR_ERRORS },
      },
    },
    async (request, reply) => {
      const user = ownerOf(request);
      const { own, after } = request.query;
      const header = request.headers["last-event-id"];
      const lastId = typeof header === "string" ? header : after;
      await context.streams.run(user, async () => {
        using _reading = own ? null : (peerEvents?.read() ?? null);
        // A reader that begins now misses nothing that comes after the head of the response.
        const uncovered = own ? [] : ((await peerEvents?.uncovered(draining)) ?? []);
        const position = events.position(lastId);
        const stream = new SseStream(request, reply, context);
        let told = "";
        const tell = async (instances: readonly string[], id?: string) => {
          if (told === instances.join()) return;
          told = instances.join();
          await stream.send("partial", { instances }, id);
        };
        const send = async (item: LogItem) => {
          if (item.kind === "gap") await stream.send("gap", {}, item.id ?? undefined);
          else if (item.kind === "partial") await tell(item.instances, item.id);
          else if (isVisibleTo(user, item.event)) await stream.sendEncoded(item.event.type, item.json, item.id);
        };
        await stream.fill(async () => {
          await tell(uncovered);
          if (position.missed) await stream.send("gap", {});
          const signal = AbortSignal.any([stream.closed, draining]);
          for await (const item of events.from(position.next, { own }, signal)) await send(item);
        });
      });
      return reply;
    },
  );
}
