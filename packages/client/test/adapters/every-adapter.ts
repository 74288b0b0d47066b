/** Both suites through every interface of an agent: without a framework, every adapter, both generations of MCP. */

import { aiSdkDrivers } from "./drivers/ai-sdk.ts";
import { deepAgentsDriver } from "./drivers/deepagents.ts";
import { langChainDriver } from "./drivers/langchain.ts";
import { libraryDriver } from "./drivers/library.ts";
import { mastraDriver } from "./drivers/mastra.ts";
import { mcpDrivers } from "./drivers/mcp.ts";
import { openAiDriver } from "./drivers/openai-agents.ts";
import { describeSandbox } from "./sandbox-suite.ts";
import type { Scenes } from "./scenes.ts";
import { describeTools } from "./tool-suite.ts";

export function describeEveryAdapter(scenes: Scenes): void {
  for (const driver of [libraryDriver, langChainDriver, ...aiSdkDrivers, ...mcpDrivers]) describeTools(driver, scenes);
  for (const driver of [deepAgentsDriver, mastraDriver, openAiDriver]) describeSandbox(driver, scenes);
}
