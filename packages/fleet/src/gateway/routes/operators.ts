/** For operators: whether engine and store agree, and the audit log. */

import { auditQuerySchema, auditReplySchema, poolReplySchema } from "@sandlot/contract";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { OPERATOR_ERRORS } from "./answers.ts";

export function operatorRoutes(app: GatewayApp, { fleet, audit, auditFleet }: GatewayContext): void {
  app.get(
    "/v1/pool",
    {
      config: { access: "operator" },
      schema: {
        summary: "Blanks: how many are kept ready and why, what they cost, and how often a thread got one",
        tags: ["operators"],
        response: { 200: poolReplySchema, ...OPERATOR_ERRORS },
      },
    },
    () => fleet.pool(),
  );

  app.get(
    "/v1/audit",
    {
      config: { access: "operator" },
      schema: {
        summary: "Engine against store, and who did what",
        tags: ["operators"],
        querystring: auditQuerySchema,
        response: { 200: auditReplySchema, ...OPERATOR_ERRORS },
      },
    },
    async (request) => {
      const findings = auditFleet === null ? null : await auditFleet();
      return {
        consistent: findings === null ? null : findings.length === 0,
        findings: [...(findings ?? [])],
        entries: audit.newest(request.query),
        gateway: fleet.instanceId,
      };
    },
  );
}
