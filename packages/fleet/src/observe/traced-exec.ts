/** A command as a span, without its text: command lines contain user input. */

import type { ExecResult, Sandbox } from "@sandlot/contract";
import { annotate, traced } from "./tracing.ts";

export function tracedExec(
  sandbox: Pick<Sandbox, "id" | "generation">,
  run: () => Promise<ExecResult>,
): Promise<ExecResult> {
  const attributes = { "sandlot.sandbox_id": sandbox.id, "sandlot.generation": sandbox.generation };
  return traced("sandlot.exec", attributes, async () => {
    const result = await run();
    const { execId, status, exitCode } = result;
    annotate({
      "sandlot.exec_id": execId,
      "sandlot.status": status,
      ...(exitCode !== null && { "process.exit.code": exitCode }),
    });
    return result;
  });
}
