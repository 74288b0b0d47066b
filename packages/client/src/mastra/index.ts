/**
 * `@sandlot/client/mastra`: a sandbox and its files for Mastra workspaces.
 *
 *   await using sandbox = new SandlotWorkspaceSandbox(fleet, { thread: "t1" });
 *   const workspace = new Workspace({ sandbox, filesystem: sandbox.filesystem });
 *
 * For agents that serve many threads, `sandlotWorkspaces` finds the thread in Mastra's request context:
 *
 *   const workspaces = sandlotWorkspaces(fleet);
 *   const workspace = new Workspace({ sandbox: workspaces.sandbox, filesystem: workspaces.filesystem });
 */

export { SandlotWorkspaceFilesystem } from "./filesystem.ts";
export { SandlotWorkspaceSandbox } from "./sandbox.ts";
export { type SandlotWorkspaces, type SandlotWorkspacesOptions, sandlotWorkspaces } from "./workspaces.ts";
