/** The gateway's preview server over attachments to the double, and a client that checks the response byte by byte. */

import { connect } from "node:net";
import { resolveGatewaySettings } from "../../packages/fleet/src/config/gateway-settings.ts";
import type { Lease } from "../../packages/fleet/src/fleet.ts";
import { RateLimits } from "../../packages/fleet/src/gateway/guards/rate-limits.ts";
import { AioLinks } from "../../packages/fleet/src/gateway/previews/aio-links.ts";
import { PreviewLinks } from "../../packages/fleet/src/gateway/previews/links.ts";
import { type PreviewParts, PreviewServer } from "../../packages/fleet/src/gateway/previews/preview-server.ts";
import { DaemonAttachment } from "../../packages/fleet/src/sandboxd/index.ts";
import type { DaemonTarget } from "../../packages/fleet/src/sandboxd/wire.ts";
import type { World } from "../../packages/fleet/src/world/world.ts";

const KEY = {
  id: "key",
  scope: "operator",
  user: null,
  label: null,
  blueprints: null,
  createdAt: 0,
  expiresAt: null,
} as const;
const STAY_MS = 120;
/** Longer than the deadline for a head, divided by the haste. */
const ANSWER_MS = 30_000;
const HEAD_PATTERN = /^HTTP\/1\.1 (101|[2-5]\d\d) [ -~]+\r\n/;

export async function openPreviews(home: string, world: World) {
  const links = await PreviewLinks.open(home, world);
  const targets = new Map<string, DaemonTarget>();
  // A lease without a fleet: it leads to the double, and ends with the request.
  const acquireExisting = async ({ thread }: { readonly thread: string }): Promise<Lease> => {
    const target = targets.get(thread);
    if (target === undefined) throw new Error(`there is no ${thread}`);
    const attachment = await DaemonAttachment.open(target, world);
    const lease: Pick<Lease, "connect" | "release"> = {
      connect: (port, { signal } = {}) => attachment.connect(port, signal),
      release: () => attachment.close(),
    };
    return lease as Lease;
  };
  const settings = resolveGatewaySettings();
  const quiet = { debug: () => {} };
  const { server, ...previews } = listening({
    ...{ links, aioLinks: await AioLinks.open(home, links, world) },
    ...{ world, settings, certificate: null, rates: new RateLimits(world, settings) },
    ...{
      threads: { acquireExisting, release: (lease) => lease.release() },
      keys: { find: () => KEY },
      logger: quiet as never,
    },
  });
  const port = await server;
  let serial = 0;
  return {
    close: previews.close,
    async ask(target: DaemonTarget, upgrade: boolean): Promise<string> {
      const thread = `t${serial++}`;
      targets.set(thread, target);
      try {
        const expiresAt = world.wallMs() + 3_600_000;
        const token = links.sign({ user: "u" as never, thread: thread as never, port: 80, keyId: KEY.id, expiresAt });
        return await visit(port, token, upgrade);
      } finally {
        targets.delete(thread);
      }
    },
  };
}

function listening(parts: PreviewParts) {
  const previews = new PreviewServer(parts);
  const server = new Promise<number>((resolve) => {
    previews.server.listen(0, "127.0.0.1", () => resolve((previews.server.address() as { port: number }).port));
  });
  return { server, close: () => previews.close() };
}

function visit(port: number, token: string, upgrade: boolean): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    let head = "";
    let timer = setTimeout(() => socket.destroy(), ANSWER_MS);
    const more = upgrade
      ? "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
      : "Connection: close\r\n";
    socket.write(`GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Sandlot-Link: ${token}\r\n${more}\r\n`);
    socket.on("data", (piece) => {
      if (head === "") {
        clearTimeout(timer);
        timer = setTimeout(() => socket.destroy(), STAY_MS);
      }
      if (head.length < 4_096) head += piece.toString("latin1");
    });
    socket.on("error", () => {});
    socket.on("close", () => {
      clearTimeout(timer);
      if (HEAD_PATTERN.test(head)) resolve(head);
      else reject(new Error(`the preview answered ${JSON.stringify(head.slice(0, 200))}`));
    });
  });
}
