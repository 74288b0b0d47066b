/**
 * Leases for remote callers. They are rows in the store: any gateway of the fleet can renew or release them, also after
 * a restart, and one that is not renewed ends by itself.
 *
 * Whose lease it is: known here for leases given here, otherwise asked of the store. Somebody else's lease is answered
 * as one that does not exist.
 */

import {
  leaseRenewalSchema,
  leaseRequestSchema,
  leaseSchema,
  SandlotError,
  threadParamsSchema,
  type UserId,
} from "@sandlot/contract";
import { z } from "zod";
import type { Fleet } from "../../fleet.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { userOf } from "../guards/caller.ts";
import { goneSignal, threadOf } from "../thread-use.ts";
import { THREAD_ERRORS } from "./answers.ts";

/** Owners remembered without asking the store. */
const OWNERS_MAX = 20_000;
const leaseParamsSchema = z.strictObject({ id: z.string().regex(/^[A-Za-z0-9_-]{1,128}$/) });

export function leaseRoutes(app: GatewayApp, { fleet, world }: GatewayContext): void {
  const owners = new LeaseOwners(fleet);

  app.post(
    "/v1/threads/:thread/leases",
    {
      config: { access: "thread", purpose: "lease" },
      schema: {
        summary: "Take a lease on the thread's sandbox",
        tags: ["leases"],
        params: threadParamsSchema,
        body: leaseRequestSchema.nullish(),
        response: { 201: leaseSchema, ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const { user, thread } = threadOf(request);
      const { purpose, ttlMs, blueprint } = leaseRequestSchema.parse(request.body ?? {});
      const signal = goneSignal(reply);
      const lease = await fleet.acquire({
        ...{ user, thread, ttlMs, signal, purpose: purpose ?? "remote" },
        ...(blueprint === undefined ? {} : { blueprint }),
      });
      if (signal.aborted) await lease.release();
      owners.remember(lease.id, user);
      reply.code(201);
      return {
        leaseId: lease.id,
        sandboxId: lease.sandbox.id,
        generation: lease.generation,
        expiresAt: world.wallMs() + ttlMs,
        recovery: { kind: lease.recovery.kind, lost: [...lease.recovery.lost], survived: [...lease.recovery.survived] },
      };
    },
  );

  app.put(
    "/v1/leases/:id",
    {
      config: { access: "thread" },
      schema: {
        summary: "Renew a lease",
        tags: ["leases"],
        params: leaseParamsSchema,
        response: { 200: leaseRenewalSchema, ...THREAD_ERRORS },
      },
    },
    async (request) => {
      const { id } = request.params;
      if ((await owners.find(id)) !== userOf(request)) throw new SandlotError("lease_not_found", { leaseId: id });
      const { expiresInMs } = await fleet.remoteLeases.renew(id);
      return { leaseId: id, expiresAt: world.wallMs() + expiresInMs };
    },
  );

  app.delete(
    "/v1/leases/:id",
    {
      config: { access: "thread" },
      schema: {
        summary: "Release a lease; releasing it again is fine",
        tags: ["leases"],
        params: leaseParamsSchema,
        response: { 204: z.null(), ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const owner = await owners.find(id);
      if (owner !== null && owner !== userOf(request)) throw new SandlotError("lease_not_found", { leaseId: id });
      if (owner !== null) await fleet.remoteLeases.release(id);
      return reply.code(204).send(null);
    },
  );
}

class LeaseOwners {
  readonly #fleet: Fleet;
  readonly #known = new Map<string, string>();

  constructor(fleet: Fleet) {
    this.#fleet = fleet;
  }

  remember(leaseId: string, user: UserId): void {
    const oldest = this.#known.keys().next();
    if (this.#known.size >= OWNERS_MAX && oldest.done !== true) this.#known.delete(oldest.value);
    this.#known.set(leaseId, user);
  }

  /** `null` when no lease of that id is known: it has ended, or never was. */
  async find(leaseId: string): Promise<string | null> {
    const known = this.#known.get(leaseId);
    if (known !== undefined) return known;
    const held = (await this.#fleet.list()).find(({ holders }) => holders.includes(leaseId));
    return held?.user ?? null;
  }
}
