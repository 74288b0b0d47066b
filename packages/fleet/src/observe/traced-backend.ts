/** A backend with spans for the steps of an acquire: create, bind a blank, attach. */

import type { Backend } from "../backend/backend.ts";
import { isTracing, traced } from "./tracing.ts";

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
