/**
 * `@sandlot/client/ai-sdk`: a sandbox for the Vercel AI SDK. For version 7 a sandbox session, for versions 6 and 7 tools.
 *
 *   await using session = sandlotSession(fleet, { thread: "t1" });
 *   await generateText({ model, prompt, tools, experimental_sandbox: session });
 *
 *   await using sandbox = sandlotTools(fleet, { thread: "t1", signal });
 *   await generateText({ model, prompt, tools: sandbox.tools, abortSignal: signal });
 */

export { type SandlotSession, sandlotSession } from "./session.ts";
export { type AiSdkTools, type AiSdkToolsOptions, sandlotTools } from "./tools.ts";
