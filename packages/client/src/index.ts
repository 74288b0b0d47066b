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
  factTexts,
  GATEWAY_HEADERS,
  isoTime,
  isSandlotError,
  type KeyRequest,
  type NewApiKey,
  type ResourceUsage,
  type Sandbox,
  type SandboxSummary,
  SandlotError,
  summaryOf,
  type Terminal,
  type ThreadSummary,
  TIMELINE_KINDS,
  type TimelineEntry,
  type TimelineKind,
  type TimelinePage,
  type UsageSample,
} from "@sandlot/contract";
export { DashboardClient, type FilePlace } from "./dashboard-client.ts";
export { ClientLease } from "./lease.ts";
export {
  type ClientAcquireRequest,
  type ClientSeed,
  SandlotClient,
  type SandlotClientOptions,
} from "./sandlot-client.ts";
export { ClientTimeline } from "./timeline.ts";
export { threadFrom, userFrom } from "./tools/thread-identity.ts";
