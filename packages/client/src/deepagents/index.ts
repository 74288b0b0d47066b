/**
 * `@sandlot/client/deepagents`: a sandbox as the backend of a deep agent.
 *
 *   const backend = new SandlotBackend(fleet);
 *   const agent = createDeepAgent({ model, backend, middleware: [backend.middleware] });
 *   await agent.invoke({ messages }, { configurable: { thread_id: "t1" } });
 *
 * One backend object serves all threads. Which one a call is for is LangGraph's own `configurable.thread_id`.
 */

export { SandlotBackend } from "./backend.ts";
export type { BackendRunsOptions } from "./runs.ts";
