/** The gateway for the command line and for users of the library. */

export type { BranchOutcome, HostWorkspaces, StagedFile, WorkspaceFiles } from "../backend/host-workspaces.ts";
export {
  type GatewayConfig,
  type GatewaySettings,
  gatewayConfigSchema,
  resolveGatewaySettings,
} from "../config/gateway-settings.ts";
export type { GatewayAbout } from "./dashboard/gateway-about.ts";
export { ApiKeys, type NewKey } from "./keys/api-keys.ts";
export { operatorKeyId, operatorKeyPath, readOperatorKey } from "./keys/operator-key.ts";
export { LogTail } from "./log-tail.ts";
export type { GatewayLogger } from "./logger.ts";
export { type ServedGateway, type ServeOptions, serve } from "./serve.ts";
export { type FleetAudit, type Gateway, type GatewayOptions, startGateway } from "./start-gateway.ts";
