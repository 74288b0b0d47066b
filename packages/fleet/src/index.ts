/** `sandlot`: one sandbox for each conversation of an AI agent. */

export * from "@sandlot/contract";
export type { FleetConfig } from "./config/fleet-config.ts";
export type {
  AcquireRequest,
  CloseOptions,
  DestroyOptions,
  DestroyOutcome,
  Explanation,
  Fleet,
  FleetEvents,
  Lease,
  RemoteLeases,
  ResetHomeOptions,
  ThreadKeyInput,
  WarmRequest,
} from "./fleet.ts";
export { openFleet } from "./open-fleet.ts";
