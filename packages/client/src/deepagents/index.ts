/**
 * `@sandlot/client/deepagents`: a sandbox as the backend of a deep agent.
 *
 *   const backend = new SandlotBackend(fleet);
 *   const agent = createDeepAgent({ model, backend, middleware: [backend.middleware] });
 *   await agent.invoke({ messages }, { configurable: { thread_id: "t1" } });
 *
 * One backend object serves all threads. LangGraph's own `configurable.thread_id` selects the thread of a call.
 */

export { SandlotBackend } from "./backend.ts";
export type { BackendRunsOptions } from "./runs.ts";
