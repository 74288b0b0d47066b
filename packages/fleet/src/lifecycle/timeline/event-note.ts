/** Which entry of a timeline an event of the fleet is; `null`: none. */

import type { FleetEvent, TimelineNote } from "@sandlot/contract";

export function noteOf(event: FleetEvent): TimelineNote | null {
  switch (event.type) {
    case "lease-acquired":
      return {
        kind: "lease",
        what: "acquired",
        facts: { purpose: event.purpose, path: event.path, durationMs: event.durationMs },
      };
    case "lease-released":
      return { kind: "lease", what: "released", facts: { purpose: event.purpose, heldMs: event.heldMs } };
    case "lease-lost":
      return { kind: "lease", what: "lost", facts: { purpose: event.purpose, reason: event.reason } };
    case "sandbox-created":
      return {
        kind: "sandbox",
        what: "created",
        facts: { durationMs: event.durationMs, engine: event.engine },
      };
    case "sandbox-bound":
      return { kind: "sandbox", what: "bound", facts: { from: event.from } };
    case "sandbox-attached":
      return { kind: "sandbox", what: "attached", facts: { durationMs: event.durationMs } };
    case "sandbox-parked":
      return { kind: "sandbox", what: "parked", facts: {} };
    case "sandbox-adopted":
      return { kind: "sandbox", what: "adopted", facts: {} };
    case "sandbox-lost":
      return event.reason === "crashed"
        ? { kind: "crash", what: "crashed", facts: { reason: event.reason, cause: event.cause ?? null } }
        : { kind: "sandbox", what: "lost", facts: { reason: event.reason } };
    case "sandbox-stopping":
      return { kind: "sandbox", what: "stopping", facts: { reason: event.reason } };
    case "sandbox-stopped":
      return { kind: "sandbox", what: "stopped", facts: { reason: event.reason, durationMs: event.durationMs } };
    case "sandbox-stop-failed":
      return { kind: "sandbox", what: "stop-failed", facts: { problem: event.problem, attempt: event.attempt } };
    case "limit-hit":
      return { kind: "limit", what: "hit", facts: { limit: event.limit, because: event.because } };
    case "egress-refused": {
      const { host, port, rule, because } = event;
      return { kind: "refused", what: "connection", facts: { host, port, rule, because, allow: ruleFor(host, port) } };
    }
    case "checkpoint-taken": {
      const { checkpoint, cause, durationMs, addedBytes } = event;
      return { kind: "checkpoint", what: "taken", facts: { checkpoint, cause, durationMs, addedBytes } };
    }
    case "checkpoint-failed":
      return { kind: "checkpoint", what: "failed", facts: { problem: event.problem } };
    case "workspace-restored":
      return { kind: "restore", what: event.as, facts: { checkpoint: event.checkpoint, safety: event.safety } };
    case "workspace-restore-refused":
      return { kind: "restore", what: "refused", facts: { checkpoint: event.checkpoint, problem: event.problem } };
    default:
      return null;
  }
}

/** A rule of `network.allow`, as one line of the configuration. The host is quoted: it comes from inside. */
function ruleFor(host: string, port: number): string {
  return `- { host: ${JSON.stringify(host)}, ports: [${port}] }`;
}
