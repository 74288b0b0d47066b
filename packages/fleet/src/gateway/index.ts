/** The gateway as the command line and the library's users have it. */

export { ApiKeys, type NewKey } from "./keys/api-keys.ts";
export { operatorKeyPath, readOperatorKey } from "./keys/operator-key.ts";
export type { GatewayLogger } from "./logger.ts";
export { type ServedGateway, type ServeOptions, serve } from "./serve.ts";
export { type GatewayConfig, type GatewaySettings, gatewayConfigSchema, resolveGatewaySettings } from "./settings.ts";
export { type FleetAudit, type Gateway, type GatewayOptions, startGateway } from "./start-gateway.ts";
export type { BranchOutcome, HostWorkspaces, StagedFile, WorkspaceFiles } from "./workspace-files.ts";
