/** Spans around the calls of a fleet: acquires, the backend's steps, commands. */

import type { ExecResult, Sandbox } from "@sandlot/contract";
import type { Backend } from "../backend/backend.ts";
import type { AcquireRequest, Lease } from "../fleet.ts";
import { annotate, isTracing, traced } from "./tracing.ts";

interface Acquires {
  acquire(request?: AcquireRequest): Promise<Lease>;
}

/** An acquire as a span, with its steps as children (`traced-backend.ts`); a shared open's are the first caller's. */
export function tracedAcquire(provider: Acquires, request: AcquireRequest = {}): Promise<Lease> {
  const { thread, purpose } = request;
  const attributes = {
    ...(thread !== undefined && { "sandlot.thread": thread }),
    ...(purpose !== undefined && { "sandlot.purpose": purpose }),
  };
  return traced("sandlot.acquire", attributes, async () => {
    const lease = await provider.acquire(request);
    const { id, sandbox, generation, recovery } = lease;
    annotate({
      "sandlot.lease_id": id,
      "sandlot.sandbox_id": sandbox.id,
      "sandlot.generation": generation,
      "sandlot.recovery": recovery.kind,
    });
    return lease;
  });
}

/** A backend with spans for the steps of an acquire: create, bind a blank, attach. */
export function tracedBackend(backend: Backend): Backend {
  const about = { "sandlot.backend": backend.name };
  const steps: Pick<Backend, "create" | "attach" | "rebind"> = {
    create: (spec, signal) => {
      if (!isTracing()) return backend.create(spec, signal);
      const { sandboxId, generation } = spec.labels;
      const attributes = { ...about, ...named(sandboxId, generation), "sandlot.blank": spec.marker === null };
      return traced("sandlot.create", attributes, () => backend.create(spec, signal));
    },
    attach: (target, signal) => {
      if (!isTracing()) return backend.attach(target, signal);
      const attributes = { ...about, ...named(target.sandboxId, target.generation) };
      return traced("sandlot.attach", attributes, () => backend.attach(target, signal));
    },
    rebind: (target, from, signal) => {
      if (!isTracing()) return backend.rebind(target, from, signal);
      const attributes = { ...about, ...named(target.sandboxId, target.generation) };
      return traced("sandlot.bind", attributes, () => backend.rebind(target, from, signal));
    },
  };
  // All other members are the backend's own. It is not the proxy's target: a frozen target would forbid other results.
  return new Proxy({} as Backend, {
    get: (_, name) => {
      if (Object.hasOwn(steps, name)) return steps[name as keyof typeof steps];
      const member: unknown = Reflect.get(backend, name, backend);
      return typeof member === "function" ? member.bind(backend) : member;
    },
  });
}

function named(sandboxId: string, generation: number) {
  return { "sandlot.sandbox_id": sandboxId, "sandlot.generation": generation };
}

/** A command as a span, without its text: command lines contain user input. */
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
