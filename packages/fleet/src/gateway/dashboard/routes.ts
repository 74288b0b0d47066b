/** Signing in to the dashboard, and what only its pages show. */

import {
  dashboardConfigurationSchema,
  dashboardDoctorSchema,
  dashboardFleetSchema,
  dashboardLinkSchema,
  dashboardLinkUseSchema,
  dashboardLogQuerySchema,
  dashboardLogSchema,
  dashboardOverviewQuerySchema,
  dashboardOverviewSchema,
  dashboardSessionSchema,
  PROTOCOL_VERSION,
  SandlotError,
} from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { packageVersion } from "../../package-files.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { keyIdOf } from "../guards/caller.ts";
import { OPERATOR_ERRORS } from "../routes/answers.ts";
import { dashboardPages } from "./pages.ts";
import { checkSender } from "./sessions.ts";

export function dashboardRoutes(app: GatewayApp, context: GatewayContext): void {
  dashboardPages(app, context);
  sessionRoutes(app, context);
  aboutRoutes(app, context);
}

function sessionRoutes(app: GatewayApp, { dashboard, keys }: GatewayContext): void {
  const { sessions } = dashboard;

  const begin = async (request: FastifyRequest, reply: FastifyReply, keyId: string) => {
    const key = await keys.find(keyId);
    if (key === null) throw new SandlotError("unauthorized", { problem: "the key is not valid" });
    const token = sessions.session(keyId);
    sessions.setCookie(request, reply, token);
    return reply.code(201).send({ key, expiresAt: token.expiresAt });
  };

  app.post(
    "/v1/dashboard/session",
    {
      config: { access: "any" },
      schema: {
        summary: "Begin a session of the dashboard, with the key of this request",
        description: "The session is a cookie of this host. It has the rights of the key, and ends with it.",
        tags: ["dashboard"],
        response: { 201: dashboardSessionSchema, ...OPERATOR_ERRORS },
      },
    },
    (request, reply) => {
      refuseSession(request);
      return begin(request, reply, keyIdOf(request));
    },
  );

  app.post(
    "/v1/dashboard/links",
    {
      config: { access: "any" },
      schema: {
        summary: "A link that begins one session of the dashboard for the key of this request",
        tags: ["dashboard"],
        response: { 201: dashboardLinkSchema, ...OPERATOR_ERRORS },
      },
    },
    async (request, reply) => {
      refuseSession(request);
      return reply.code(201).send(dashboard.linkPath(keyIdOf(request)));
    },
  );

  app.post(
    "/v1/dashboard/links/use",
    {
      // The link is the credential.
      config: { access: "open" },
      schema: {
        summary: "Begin the session that a link is for; it works once",
        tags: ["dashboard"],
        security: [],
        body: dashboardLinkUseSchema,
        response: { 201: dashboardSessionSchema, ...OPERATOR_ERRORS },
      },
    },
    async (request, reply) => {
      checkSender(request);
      return begin(request, reply, (await sessions.useLink(request.body.token)).id);
    },
  );

  app.get(
    "/v1/dashboard/session",
    {
      config: { access: "any" },
      schema: {
        summary: "The session of the dashboard: its key, and when it ends",
        tags: ["dashboard"],
        response: { 200: dashboardSessionSchema, ...OPERATOR_ERRORS },
      },
    },
    async (request) => {
      const session = request.caller?.session;
      const key = session === undefined ? null : await keys.find(session.keyId);
      if (session === undefined || key === null) throw new SandlotError("unauthorized", { problem: "no session" });
      return { key, expiresAt: session.expiresAt };
    },
  );

  app.delete(
    "/v1/dashboard/session",
    {
      config: { access: "any" },
      schema: {
        summary: "End the session at every gateway of the store",
        tags: ["dashboard"],
        response: { 204: z.null(), ...OPERATOR_ERRORS },
      },
    },
    async (request, reply) => {
      const session = request.caller?.session;
      if (session !== undefined) await sessions.end(session);
      sessions.setCookie(request, reply, null);
      return reply.code(204).send(null);
    },
  );
}

/** A session that could begin another would never end. */
function refuseSession({ caller }: FastifyRequest): void {
  if (caller?.session !== undefined)
    throw new SandlotError("forbidden", { problem: "a session begins no other one: send the key" });
}

function aboutRoutes(app: GatewayApp, { dashboard, fleet, settings, streams, world }: GatewayContext): void {
  const { about, facts } = dashboard;
  const overview = (bins: number) => ({
    ...facts.read(bins),
    instance: fleet.instanceId,
    version: packageVersion(),
    limit: about?.limit ?? null,
    openStreams: streams.openCount,
  });

  app.get(
    "/v1/dashboard/overview",
    {
      config: { access: "operator", peers: "overview" },
      schema: {
        summary: "What happened at this gateway, and how its host is",
        tags: ["dashboard"],
        querystring: dashboardOverviewQuerySchema,
        response: { 200: dashboardOverviewSchema, ...OPERATOR_ERRORS },
      },
    },
    async ({ query: { bins } }) => overview(bins),
  );

  app.get(
    "/v1/dashboard/fleet",
    {
      config: { access: "operator" },
      schema: {
        summary: "The overviews of all gateways of the fleet; one that does not answer is named as missing",
        tags: ["dashboard"],
        querystring: dashboardOverviewQuerySchema,
        response: { 200: dashboardFleetSchema, ...OPERATOR_ERRORS },
      },
    },
    async ({ query: { bins } }) => {
      const self = { instance: fleet.instanceId, address: settings.advertise ?? null, isSelf: true };
      const others = await dashboard.peers.read(bins);
      return {
        gateways: [{ ...self, lastBeatAt: world.wallMs(), overview: overview(bins), problem: null }, ...others],
      };
    },
  );

  app.get(
    "/v1/dashboard/configuration",
    {
      config: { access: "operator" },
      schema: {
        summary: "The configuration in force, with the origin of every value and without secrets",
        tags: ["dashboard"],
        response: { 200: dashboardConfigurationSchema, ...OPERATOR_ERRORS },
      },
    },
    async () => {
      const { file = null, values = null } = about?.configuration() ?? {};
      const versions = { sandlot: packageVersion(), protocol: PROTOCOL_VERSION, node: process.version };
      return { file, values, versions };
    },
  );

  app.get(
    "/v1/dashboard/doctor",
    {
      config: { access: "operator" },
      schema: {
        summary: "What `sandlot doctor` finds on the host of this gateway",
        tags: ["dashboard"],
        response: { 200: dashboardDoctorSchema, ...OPERATOR_ERRORS },
      },
    },
    async () => ({ findings: about === null ? null : await about.doctor() }),
  );

  app.get(
    "/v1/dashboard/log",
    {
      config: { access: "operator" },
      schema: {
        summary: "The last lines of this gateway's log, without secrets",
        tags: ["dashboard"],
        querystring: dashboardLogQuerySchema,
        response: { 200: dashboardLogSchema, ...OPERATOR_ERRORS },
      },
    },
    async ({ query: { limit } }) => {
      const lines = about?.log?.(limit);
      return { lines: lines === undefined ? null : [...lines] };
    },
  );
}
