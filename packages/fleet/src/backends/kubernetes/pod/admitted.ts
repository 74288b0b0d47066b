/**
 * Compares a pod with what admission made of it. A webhook that adds a container, a volume or a token would bring into
 * the sandbox what its blueprint does not name, so such a pod is removed before it runs.
 */

import type { Pod } from "./pod.ts";

interface Wanted {
  readonly spec: {
    readonly containers: readonly object[];
    readonly initContainers?: readonly object[];
    readonly volumes: readonly object[];
    readonly hostUsers?: unknown;
  };
}

/** What differs, in one sentence; `null` when nothing that matters does. */
export function differenceOf(wanted: Wanted, made: Pod): string | null {
  const { spec } = made as unknown as { readonly spec: Readonly<Record<string, unknown>> };
  const named = (list: unknown) => ((list ?? []) as { name: string }[]).map(({ name }) => name).sort();
  for (const part of ["containers", "initContainers", "volumes"] as const) {
    const [asked, got] = [named(wanted.spec[part]), named(spec[part])];
    if (asked.join() !== got.join()) return `admission changed its ${part} from [${asked}] to [${got}]`;
  }
  const changed = changedContainer(wanted.spec.containers, spec.containers);
  if (changed !== null) return changed;
  if (spec.automountServiceAccountToken !== false) return "admission gave it a service account token";
  if (wanted.spec.hostUsers === false && spec.hostUsers !== false) return "admission took its own accounts away";
  for (const share of ["hostNetwork", "hostPID", "hostIPC"]) if (spec[share] === true) return `admission set ${share}`;
  return null;
}

/** The parts of a container that decide what runs, as whom, and what it sees. */
const COMPARED = ["image", "command", "args", "securityContext", "volumeMounts", "env"] as const;

function changedContainer(wanted: readonly object[], made: unknown): string | null {
  for (const container of wanted as Readonly<Record<string, unknown>>[]) {
    const got = (made as Readonly<Record<string, unknown>>[]).find(({ name }) => name === container.name);
    const part = COMPARED.find((key) => !holds(container[key] ?? null, got?.[key] ?? null));
    if (part !== undefined) return `admission changed ${part} of its container ${String(container.name)}`;
  }
  return null;
}

/** Whether `got` says everything that `wanted` does. The API server adds defaults, but only to objects. */
function holds(wanted: unknown, got: unknown): boolean {
  if (Array.isArray(wanted)) {
    return Array.isArray(got) && wanted.length === got.length && wanted.every((one, index) => holds(one, got[index]));
  }
  if (wanted !== null && typeof wanted === "object") {
    if (got === null || typeof got !== "object") return false;
    return Object.entries(wanted).every(([key, value]) => holds(value, (got as Record<string, unknown>)[key]));
  }
  return wanted === got;
}
