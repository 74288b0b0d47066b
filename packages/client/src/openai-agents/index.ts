/**
 * `@sandlot/client/openai-agents`: sandboxes for the OpenAI Agents SDK.
 *
 *   const client = new SandlotSandboxClient(fleet);
 *   const agent = new SandboxAgent({ name: "coder", model, capabilities: [shell(), filesystem()] });
 *   await run(agent, input, { sandbox: { client, options: { thread: "t1" } } });
 *
 * The SDK creates a session for each run and ends it with the run; that session is one run with one lease, taken when
 * the first tool needs it. The thread is in the client's options, because the SDK passes nothing else to a client.
 */

export { type SandlotClientOptions, SandlotSandboxClient, type SandlotSessionState } from "./client.ts";
export type { SandlotSandboxSession } from "./session.ts";
