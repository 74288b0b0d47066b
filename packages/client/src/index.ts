/**
 * `@sandlot/client`: talks to a Sandlot gateway, from Node and from browsers.
 */

export {
  type ApiKeyInfo,
  type AuditFinding,
  type AuditReply,
  type DashboardConfiguration,
  type DashboardDoctor,
  type DashboardFinding,
  type DashboardFleet,
  type DashboardOverview,
  type DashboardSession,
  type DashboardSlice,
  type ExplanationReply,
  type FileStat,
  type FleetEvent,
  GATEWAY_HEADERS,
  isSandlotError,
  type KeyRequest,
  type NewApiKey,
  type ResourceUsage,
  type Sandbox,
  type SandboxSummary,
  SandlotError,
  type Terminal,
  type ThreadSummary,
} from "@sandlot/contract";
export { DashboardClient, type FilePlace } from "./dashboard-client.ts";
export { ClientLease } from "./lease.ts";
export {
  type ClientAcquireRequest,
  type ClientSeed,
  SandlotClient,
  type SandlotClientOptions,
} from "./sandlot-client.ts";
export { threadFrom, userFrom } from "./tools/thread-identity.ts";
