/**
 * Leases for remote callers. They are rows in the store: any gateway of the fleet can renew or release them, also after
 * a restart, and a lease that is not renewed expires.
 *
 * The owner of a lease is cached for leases given or seen here, otherwise read from the store. Another user's lease gets the
 * same response as a missing one.
 *
 * A crashed sandbox takes the rows of its leases with it. Renewing one at the gateway that gave it yields the next
 * generation, as the next use of a library lease does, and the response says so.
 */

import {
  isSandlotError,
  leaseRenewalSchema,
  leaseRequestSchema,
  leaseSchema,
  SandlotError,
  threadParamsSchema,
  type UserId,
} from "@sandlot/contract";
import type { FastifyRequest } from "fastify";
import { z } from "zod";
import { parseUser } from "../../config/call-options.ts";
import type { Fleet, Lease, SeedInput } from "../../fleet.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { userOf } from "../guards/caller.ts";
import { goneSignal, threadOf } from "../thread-use.ts";
import { THREAD_ERRORS } from "./answers.ts";

/** Leases cached without asking the store. */
const GIVEN_MAX = 20_000;
const leaseParamsSchema = z.strictObject({ id: z.string().regex(/^[A-Za-z0-9_-]{1,128}$/) });

export function leaseRoutes(app: GatewayApp, { fleet, threads, world }: GatewayContext): void {
  const given = new GivenLeases(fleet);

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
      const key = threadOf(request);
      const { purpose, ttlMs, blueprint, from } = leaseRequestSchema.parse(request.body ?? {});
      const signal = goneSignal(reply);
      const lease = await threads.acquireAs(key, {
        ...{ ttlMs, signal, purpose: purpose ?? "remote" },
        ...(blueprint === undefined ? {} : { blueprint }),
        ...(from === undefined ? {} : { from: seedOf(from, request) }),
      });
      if (signal.aborted) await lease.release();
      else given.remember(lease, key.user);
      return reply.code(201).send({ leaseId: lease.id, expiresAt: world.wallMs() + ttlMs, ...presentOf(lease) });
    },
  );

  app.put(
    "/v1/leases/:id",
    {
      config: { access: "thread" },
      schema: {
        summary: "Renew a lease; after a crash this makes the thread's sandbox anew",
        tags: ["leases"],
        params: leaseParamsSchema,
        response: { 200: leaseRenewalSchema, ...THREAD_ERRORS },
      },
    },
    async (request) => {
      const { id } = request.params;
      if ((await given.ownerOf(id)) !== userOf(request)) throw new SandlotError("lease_not_found", { leaseId: id });
      const lease = given.find(id);
      const { expiresInMs } = await renew(fleet, id, lease);
      const present = lease === null ? {} : { present: presentOf(lease) };
      return { leaseId: id, expiresAt: world.wallMs() + expiresInMs, ...present };
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
      const owner = await given.ownerOf(id);
      if (owner !== null && owner !== userOf(request)) throw new SandlotError("lease_not_found", { leaseId: id });
      if (owner !== null) await fleet.remoteLeases.release(id);
      given.ended(id);
      return reply.code(204).send(null);
    },
  );
}

/** A directory of the host is read with the gateway's rights. */
function seedOf(from: NonNullable<z.output<typeof leaseRequestSchema>["from"]>, request: FastifyRequest): SeedInput {
  if ("directory" in from) {
    if (request.caller?.scope === "operator") return from;
    throw new SandlotError("forbidden", { problem: "a directory of the host is for operators" });
  }
  const { thread, checkpoint } = from;
  return { thread, ...(checkpoint !== undefined && { checkpoint }) };
}

async function renew(fleet: Fleet, leaseId: string, lease: Lease | null): Promise<{ readonly expiresInMs: number }> {
  try {
    return await fleet.remoteLeases.renew(leaseId);
  } catch (error) {
    if (lease === null || !isSandlotError(error, "lease_not_found")) throw error;
    // A use moves a lease to the next generation. An ended lease refuses, and stays ended.
    await lease.sandbox.execs.list().catch((refusal: unknown) => {
      throw isSandlotError(refusal, "lease_released") ? error : refusal;
    });
    return fleet.remoteLeases.renew(leaseId);
  }
}

function presentOf({ sandbox, generation, recovery }: Lease) {
  const { lost, survived, ...rest } = recovery;
  return { sandboxId: sandbox.id, generation, recovery: { ...rest, lost: [...lost], survived: [...survived] } };
}

/** Leases given here, and their owners. The oldest are forgotten first. */
class GivenLeases {
  readonly #fleet: Fleet;
  readonly #given = new Map<string, { readonly user: UserId; readonly lease: Lease | null }>();

  constructor(fleet: Fleet) {
    this.#fleet = fleet;
  }

  remember(lease: Lease, user: UserId): void {
    this.#know(lease.id, { user, lease });
    lease.onLost(({ reason }) => {
      if (reason === "expired") this.ended(lease.id);
    });
  }

  #know(leaseId: string, given: { readonly user: UserId; readonly lease: Lease | null }): void {
    const oldest = this.#given.keys().next();
    if (this.#given.size >= GIVEN_MAX && oldest.done !== true) this.#given.delete(oldest.value);
    this.#given.set(leaseId, given);
  }

  /** The owner stays known, so that a repeated request gets the same response. */
  ended(leaseId: string): void {
    const known = this.#given.get(leaseId);
    if (known !== undefined) this.#given.set(leaseId, { user: known.user, lease: null });
  }

  find(leaseId: string): Lease | null {
    return this.#given.get(leaseId)?.lease ?? null;
  }

  /** `null` when no lease of that id is known: it has ended, or never existed. */
  async ownerOf(leaseId: string): Promise<string | null> {
    const known = this.#given.get(leaseId);
    if (known !== undefined) return known.user;
    const held = (await this.#fleet.list()).find(({ holders }) => holders.includes(leaseId));
    const user = held?.user ?? null;
    // The next renewal here asks no more. Whether the lease still exists, the store says each time.
    if (user !== null) this.#know(leaseId, { user: parseUser(user), lease: null });
    return user;
  }
}
