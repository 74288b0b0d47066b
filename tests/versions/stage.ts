/** A gateway over a fleet whose sandbox is a real daemon of this version, and callers of both. */

import { join } from "node:path";
import { SandlotClient } from "@sandlot/client";
import type { Attachment, Backend, Target } from "../../packages/fleet/src/backend/backend.ts";
import { DaemonAttachment, type DaemonTarget } from "../../packages/fleet/src/sandboxd/index.ts";
import { openStage, type Stage } from "../../packages/fleet/test/gateway/support/stage.ts";
import { targetOf, world } from "../../packages/fleet/test/sandboxd/attached.ts";
import { type StartedDaemon, startDaemon } from "../../packages/sandboxd/test/start-daemon.ts";
import type { Document } from "./later-gateway.ts";

export interface VersionStage {
  readonly stage: Stage;
  readonly daemon: StartedDaemon;
  readonly target: DaemonTarget;
  readonly document: Document;
  /** The path inside for this name. */
  at(name: string): string;
  client(url?: string): SandlotClient;
}

export async function openVersionStage(): Promise<VersionStage> {
  const daemon = await startDaemon();
  const target = targetOf(daemon);
  const stage = await openStage({ enrich: (backend) => withDaemon(backend, target) });
  const document = await stage.operator.ask<Document>(200, "GET", "/openapi.json");
  const client = (url = stage.gateway.url) =>
    new SandlotClient({ url, apiKey: stage.operator.key, user: "u", retriesMax: 0 });
  return { stage, daemon, target, document, at: (name) => join(daemon.workspace, name), client };
}

/** Every sandbox of the fleet is this daemon. */
function withDaemon(backend: Backend, to: DaemonTarget): Backend {
  return new Proxy(backend, {
    get(target, name) {
      if (name === "attach")
        return async (asked: Target, signal: AbortSignal): Promise<Attachment> => {
          const attachment = await target.attach(asked, signal);
          const daemon = await DaemonAttachment.open(to, world, signal);
          return {
            sandbox: {
              ...daemon.sandbox,
              ...{ id: attachment.sandbox.id, generation: attachment.sandbox.generation },
              exec: (...given) => daemon.sandbox.exec(...given),
              spawn: (...given) => daemon.sandbox.spawn(...given),
              processes: () => daemon.sandbox.processes(),
              usage: () => daemon.sandbox.usage(),
            },
            closed: attachment.closed,
            connect: (port, given) => daemon.connect(port, given),
            async close() {
              await daemon.close();
              await attachment.close();
            },
          };
        };
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
