/**
 * `@sandlot/client/tools`: an agent's operations in its sandbox, as schemas and functions, for any framework or none.
 *
 *   await using tools = sandlotTools(fleet, { thread: "t1" });
 *   const { text } = await tools.call("bash", { command: "ls" });
 */

export { SANDBOX_INSTRUCTIONS, sandboxInstructions } from "./instructions.ts";
export { TOOL_LIMITS, TOOL_RESULTS_DIRECTORY } from "./limits.ts";
export type { OutputPiece } from "./live-output.ts";
export { type AuditEntry, type AuditFinding, auditCommand, type Verdict } from "./policy/command-audit.ts";
export { isCredentialName, scrubEnvironment } from "./policy/environment.ts";
export { RedactingStream, Redactor } from "./policy/redaction.ts";
export { type RunOptions, SandboxRun, type UseOptions } from "./run.ts";
export type { SandboxLease, SandboxRequest, SandboxSource } from "./source.ts";
export { textOf } from "./text.ts";
export { threadFrom, userFrom } from "./thread-identity.ts";
export type { RefusalCode, SandboxTool, ToolAnswer, ToolImage, ToolOutput } from "./tool.ts";
export { ToolRefusal } from "./tool.ts";
export {
  type CallOptions,
  OPTIONAL_TOOLS,
  SANDBOX_TOOLS,
  sandlotTools,
  ToolBox,
  type ToolBoxOptions,
  type ToolPolicy,
} from "./tool-box.ts";
