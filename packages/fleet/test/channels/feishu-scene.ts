/** A Feishu channel over a fleet in memory, through the real SDK, connected to the stand-in of the platform. */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import type { ChannelMessage } from "../../src/channels/channel.ts";
import { type FeishuOptions, openFeishuChannel } from "../../src/channels/feishu/feishu-channel.ts";
import type { Fleet } from "../../src/fleet.ts";
import { openFleet } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { World } from "../../src/world/world.ts";
import { APP_ID, APP_SECRET, FeishuStandIn } from "./feishu-platform.ts";

export interface Scene extends AsyncDisposable {
  readonly platform: FeishuStandIn;
  readonly fleet: Fleet;
  readonly channel: Awaited<ReturnType<typeof openFeishuChannel>>;
  readonly messages: ChannelMessage[];
  readonly errors: unknown[];
  leaseCount(): number;
  /** The uploads of a message's thread. */
  uploads(message: ChannelMessage): Promise<Record<string, string>>;
}

export async function openScene(
  options: Partial<FeishuOptions> = {},
  prepare: (platform: FeishuStandIn) => void = () => {},
): Promise<Scene> {
  const home = mkdtempSync(join(tmpdir(), "sandlot-feishu-"));
  const fleet = await openFleet({ home, backend: "memory", store: { type: "memory" } });
  const platform = new FeishuStandIn();
  prepare(platform);
  const domain = await platform.listen();
  const messages: ChannelMessage[] = [];
  const errors: unknown[] = [];
  let leases = 0;
  fleet.events.on(() => (leases += 1), "lease-acquired");
  fleet.events.on(() => (leases -= 1), "lease-released");
  const closeStage = async () => {
    await platform[Symbol.asyncDispose]();
    await fleet.close({ destroy: true, drainMs: 0 });
    rmSync(home, { recursive: true, force: true });
  };
  const opening = openFeishuChannel({
    ...{ source: fleet, world: systemWorld(), appId: APP_ID, appSecret: APP_SECRET, domain },
    onMessage: async (message) => {
      messages.push(message);
      await message.reply(`got: ${message.text}`);
    },
    onError: (error) => errors.push(error),
    ...options,
  });
  const channel = await opening
    .then(async (opened) => {
      await opened.start();
      return opened;
    })
    .catch(async (error: unknown) => {
      await closeStage();
      throw error;
    });
  if (options.mode !== "webhook") await platform.connected();
  return {
    ...{ platform, fleet, channel, messages, errors },
    leaseCount: () => leases,
    async uploads({ user, thread }) {
      await using lease = await fleet.acquire({ user, thread });
      const { files } = lease.sandbox;
      const { entries } = await files.list("/mnt/user-data/uploads");
      const texts = entries.map(async ({ path, kind }) => [
        path.slice(23),
        kind === "file" ? await files.readText(path) : kind,
      ]);
      return Object.fromEntries(await Promise.all(texts)) as Record<string, string>;
    },
    async [Symbol.asyncDispose]() {
      await channel.stop();
      const left = leases;
      await closeStage();
      expect(left, "leases left behind").toBe(0);
    },
  };
}

/** How long files are batched. */
export const BATCH_MS = 750;
const LONG_MS = 30_000;

/**
 * A world in which batches, and waits of half a minute and more, end when the test says so, however slow the machine
 * is.
 */
export class Patience {
  readonly #waiting = new Set<{ readonly delayMs: number; readonly fire: () => void }>();
  readonly world: World;

  constructor() {
    const world = systemWorld();
    const timer: World["timer"] = (delayMs, fire, options) => {
      if (delayMs !== BATCH_MS && delayMs < LONG_MS) return world.timer(delayMs, fire, options);
      const waiting = { delayMs, fire };
      this.#waiting.add(waiting);
      return { cancel: () => void this.#waiting.delete(waiting) };
    };
    this.world = Object.assign(Object.create(world) as World, { timer });
  }

  /** Ends the waits of that length; returns their number. */
  end(delayMs: number): number {
    const due = [...this.#waiting].filter((waiting) => waiting.delayMs === delayMs);
    for (const waiting of due) {
      this.#waiting.delete(waiting);
      waiting.fire();
    }
    return due.length;
  }
}

let events = 0;

export interface EventOptions {
  readonly id?: string;
  readonly eventId?: string;
  readonly chat?: string;
  readonly chatType?: string;
  readonly root?: string;
  readonly sender?: string;
  readonly tenant?: string;
  readonly senderType?: string;
}

export function event(type: string, content: object, options: EventOptions = {}) {
  events += 1;
  const {
    id = `om_${events}`,
    eventId = `ev_${events}`,
    chat = "oc_1",
    chatType = "p2p",
    root,
    sender = "ou_ann",
  } = options;
  const { tenant = "tenant-1", senderType = "user" } = options;
  return {
    schema: "2.0",
    header: {
      event_id: eventId,
      event_type: "im.message.receive_v1",
      tenant_key: tenant,
      app_id: APP_ID,
      token: "v-token",
    },
    event: {
      sender: { sender_id: { open_id: sender }, sender_type: senderType },
      message: {
        ...{ message_id: id, chat_id: chat, chat_type: chatType, message_type: type, content: JSON.stringify(content) },
        ...(root === undefined ? {} : { root_id: root, parent_id: root }),
      },
    },
  };
}

export const stored = (content: string, more: object = {}) => ({ content: Buffer.from(content), ...more });

/** One request to the channel's webhook. */
export async function post(scene: Scene, body: string, headers: Record<string, string> = {}) {
  const server = createServer((request, response) => void scene.channel.handleWebhook(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const response = await fetch(`http://127.0.0.1:${port}/feishu`, { method: "POST", body, headers });
  const answer = { status: response.status, body: await response.text() };
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  return answer;
}
