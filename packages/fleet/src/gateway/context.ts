/** What every route of a gateway uses, and the configuration that a route declares. */

import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifyRequest,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from "fastify";
import type { ZodTypeProvider } from "fastify-type-provider-zod";
import type { GatewaySettings } from "../config/gateway-settings.ts";
import type { Fleet } from "../fleet.ts";
import type { World } from "../world/world.ts";
import type { AuditLog } from "./audit-log.ts";
import type { Dashboard } from "./dashboard/dashboard.ts";
import type { Converter } from "./documents/converter.ts";
import type { EventLog } from "./events/event-log.ts";
import type { PeerPurpose } from "./events/peer-credential.ts";
import type { PeerEvents } from "./events/peer-events.ts";
import type { Access, Caller } from "./guards/caller.ts";
import type { ApiKeys } from "./keys/api-keys.ts";
import type { Metrics } from "./metrics.ts";
import type { AioLinks } from "./previews/aio-links.ts";
import type { PreviewLinks } from "./previews/links.ts";
import type { ProvisionedSandbox } from "./provisioner/provisioned-sandboxes.ts";
import type { Provisioner } from "./provisioner/provisioner.ts";
import type { FleetAudit } from "./start-gateway.ts";
import type { Streams } from "./streams/streams.ts";
import type { ThreadUse } from "./thread-use.ts";
import type { WorkspaceAccess } from "./workspace-access.ts";

export interface GatewayContext {
  readonly fleet: Fleet;
  readonly world: World;
  readonly settings: GatewaySettings;
  readonly threads: ThreadUse;
  readonly workspaces: WorkspaceAccess;
  readonly converter: Converter;
  readonly links: PreviewLinks;
  readonly aioLinks: AioLinks;
  /** The URL of a host name below the preview domain, without a trailing slash. */
  readonly previewAddress: (label: string) => string;
  /** `null` where it is switched off. */
  readonly provisioner: Provisioner | null;
  /** The URL of a provisioned sandbox, as the sender of this request can reach it. */
  readonly sandboxUrl: (request: FastifyRequest, record: ProvisionedSandbox) => string;
  readonly events: EventLog;
  /** Events of the store's other instances; `null` where the store is this host's alone. */
  readonly peerEvents: PeerEvents | null;
  readonly audit: AuditLog;
  readonly keys: ApiKeys;
  readonly dashboard: Dashboard;
  readonly auditFleet: FleetAudit | null;
  readonly metrics: Metrics;
  readonly streams: Streams;
  /** Fires when the gateway is being stopped. */
  readonly draining: AbortSignal;
}

export type GatewayApp = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  ZodTypeProvider
>;

declare module "fastify" {
  interface FastifyContextConfig {
    /** Which callers may use it. A route without it is not registered. */
    access?: Access;
    /** What the request does with the thread's sandbox, shown as the holder's purpose. */
    purpose?: string;
    /** The handler reads the body itself, as a stream. */
    streamsBody?: boolean;
    /** Errors also carry `detail`, as DeerFlow's web client expects. */
    deerflow?: boolean;
    /** Errors have the form of DeerFlow's provisioner. */
    provisioner?: boolean;
    /** A page of the dashboard: the same for all, so that a link on any site may lead to it. */
    page?: boolean;
    /** Other gateways of the store may use it, with their own credential. */
    peers?: PeerPurpose;
  }
  interface FastifyRequest {
    caller: Caller | null;
    errorCode: string | null;
    startedAt: number;
    /** `routeOptions`, which the framework builds anew on each access. */
    route: FastifyRequest["routeOptions"];
  }
}
