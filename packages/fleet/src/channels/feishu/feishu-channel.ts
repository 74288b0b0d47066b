/**
 * Feishu (Lark) as a channel: a bot that people write to, with files. Events come over a long connection or by webhook.
 *
 *   event → duplicate? → batched with its neighbours → in the conversation's turn: files to uploads → handler → reply
 *
 * Invariants
 * - The channel confirms an event at once, and does the work afterwards: the platform repeats an event that is not
 *   confirmed within seconds.
 * - One conversation is handled one message at a time, several conversations concurrently.
 * - A user is the tenant and the sender as the platform names them, mapped one to one; two tenants never share a user.
 */

import { createHash } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { SandboxSource } from "@sandlot/client/tools";
import { SandlotError } from "@sandlot/contract";
import { importPeer } from "../../optional-peer.ts";
import type { Timer, World } from "../../world/world.ts";
import type { AnnouncedFile, Channel, ChannelMessage } from "../channel.ts";
import { fillPlaceholders, receiveFiles } from "../received-messages.ts";
import { FileBatches } from "./batches.ts";
import type { FeishuPlatform } from "./feishu-platform.ts";
import { type FeishuFile, type FeishuMessage, parseMessage } from "./message.ts";
import { feishuPlatform, SILENT_LOGGER, TokenCache } from "./platform.ts";
import { handleWebhook } from "./webhook.ts";

export interface FeishuOptions {
  /** A fleet, or the client of a gateway. */
  readonly source: SandboxSource;
  readonly appId: string;
  readonly appSecret: string;
  /** Default: the platform in mainland China. `https://open.larksuite.com` is the other one. */
  readonly domain?: string;
  /** `connection` (default): no public address is needed. `webhook`: pass requests to `handleWebhook`. */
  readonly mode?: "connection" | "webhook";
  readonly encryptKey?: string;
  readonly verificationToken?: string;
  /** Maps a sender to a user id of the fleet; `null` for the default, a separate user per sender. */
  readonly userOf?: (sender: { readonly tenantKey: string; readonly openId: string }) => string | null;
  readonly maxFileBytes?: number;
  readonly maxFiles?: number;
  readonly onMessage: (message: ChannelMessage, signal: AbortSignal) => Promise<void>;
  /** A failure of one message, or of the connection. Contains no token. */
  readonly onError?: (error: unknown) => void;
  /** Time and randomness. Default: the machine's own. */
  readonly world?: World;
}

const MAX_FILE_BYTES = 50 * 1024 * 1024;
const MAX_FILES = 20;
const EVENTS_REMEMBERED = 10_000;
const CONNECT_TIMEOUT_MS = 15_000;
const RECONNECT_MS = 1_000;
const RECONNECT_MAX_MS = 60_000;
const APP_ID = /^cli_[0-9a-f]{16}$/;
const ID_HEX_DIGITS = 40;
const SORRY = "Something went wrong with this message. Please try again.";

export async function openFeishuChannel(options: FeishuOptions): Promise<FeishuChannel> {
  checkOptions(options);
  const sdk = await importPeer(
    "@larksuiteoapi/node-sdk",
    "The Feishu channel",
    () => import("@larksuiteoapi/node-sdk"),
  );
  const world = options.world ?? (await import("../../world/system-world.ts")).systemWorld();
  const { appId, appSecret, domain = sdk.Domain.Feishu, encryptKey = null, verificationToken = null } = options;
  const cache = new TokenCache(world);
  const quiet = { logger: SILENT_LOGGER };
  const platform = feishuPlatform(new sdk.Client({ appId, appSecret, domain, cache, ...quiet }), cache, world);
  const channel = new FeishuChannel({ ...options, world }, platform);
  const dispatcher = new sdk.EventDispatcher({ ...(encryptKey === null ? {} : { encryptKey }), ...quiet });
  dispatcher.register({ "im.message.receive_v1": async (data: unknown) => channel.receive(data) });
  if (options.mode === "webhook") {
    const cipher = encryptKey === null ? null : new sdk.AESCipher(encryptKey);
    channel.webhookParts = { dispatcher, cipher, encryptKey, verificationToken };
    return channel;
  }
  const settings = { appId, appSecret, domain, autoReconnect: true, ...quiet };
  channel.connect = (onLost) => connect(sdk, settings, dispatcher, world, { onLost, onError: options.onError });
  return channel;
}

type Sdk = typeof import("@larksuiteoapi/node-sdk");

interface Connection {
  close(options?: { force?: boolean }): void;
}

/** Resolves with a connection that receives events, or leaves none behind. `onLost`: the SDK has given up on it. */
function connect(
  sdk: Sdk,
  settings: ConstructorParameters<Sdk["WSClient"]>[0],
  eventDispatcher: InstanceType<Sdk["EventDispatcher"]>,
  world: World,
  { onLost, onError }: { readonly onLost: () => void; readonly onError: FeishuOptions["onError"] },
): Promise<Connection> {
  return new Promise((resolve, reject) => {
    let isReady = false;
    let isOver = false;
    const fail = (error: unknown) => {
      if (isOver) return;
      isOver = true;
      timer.cancel();
      connection.close({ force: true });
      onError?.(error);
      if (isReady) onLost();
      else reject(error);
    };
    const late = new SandlotError("wait_timeout", { waitedFor: "Feishu", timeoutMs: CONNECT_TIMEOUT_MS });
    const timer = world.timer(CONNECT_TIMEOUT_MS, () => fail(late));
    const ready = () => {
      isReady = true;
      timer.cancel();
      resolve(connection);
    };
    const connection = new sdk.WSClient({ ...settings, onReady: ready, onError: fail });
    connection.start({ eventDispatcher }).catch(fail);
  });
}

export class FeishuChannel implements Channel {
  readonly name = "feishu";
  webhookParts: Parameters<typeof handleWebhook>[0] | null = null;
  connect: ((onLost: () => void) => Promise<Connection>) | null = null;
  readonly #options: FeishuOptions & { readonly world: World };
  readonly #platform: FeishuPlatform;
  readonly #batches: FileBatches;
  readonly #seen = new Set<string>();
  readonly #turns = new Map<string, Promise<void>>();
  readonly #stopping = new AbortController();
  #connection: Connection | null = null;
  #reconnecting: Timer | null = null;
  #isStopped = false;

  constructor(options: FeishuOptions & { readonly world: World }, platform: FeishuPlatform) {
    this.#options = options;
    this.#platform = platform;
    this.#batches = new FileBatches(options.world, options.maxFiles ?? MAX_FILES, (message) => this.#enqueue(message));
  }

  async start(): Promise<void> {
    if (this.#connection !== null || this.connect === null) return;
    const connection = await this.connect(() => this.#connectAgain(RECONNECT_MS));
    if (this.#isStopped) connection.close({ force: true });
    else this.#connection = connection;
  }

  /** Finishes accepted messages; `abort` ends them instead. */
  async stop({ abort = false }: { readonly abort?: boolean } = {}): Promise<void> {
    this.#isStopped = true;
    this.#reconnecting?.cancel();
    this.#connection?.close({ force: true });
    this.#connection = null;
    if (abort) this.#stopping.abort(new SandlotError("fleet_closed", { operation: "the message" }));
    this.#batches.flush();
    while (this.#turns.size > 0) await Promise.all(this.#turns.values());
  }

  /** The SDK retries as long as the platform allows, which may be limited. The bot keeps retrying after that. */
  #connectAgain(delayMs: number): void {
    this.#connection = null;
    if (this.#isStopped) return;
    this.#reconnecting = this.#options.world.timer(delayMs, () => {
      // `onError` already has the failure.
      this.start().catch(() => this.#connectAgain(Math.min(delayMs * 2, RECONNECT_MAX_MS)));
    });
  }

  /** Handles one request. Never rejects. */
  async handleWebhook(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.webhookParts === null)
      throw new SandlotError("invalid_request", { field: "mode", problem: "it is not webhook" });
    try {
      await handleWebhook(this.webhookParts, request, response);
    } catch (error) {
      this.#options.onError?.(error);
      response.destroy();
    }
  }

  /** Accepts an event from either transport, and returns at once. */
  receive(data: unknown): void {
    const message = parseMessage(data);
    if (message === null || message.isFromApp || this.#isKnown(message)) return;
    this.#batches.add(message);
  }

  /** The platform repeats events, also under another event id. */
  #isKnown({ eventId, messageId }: FeishuMessage): boolean {
    const known = this.#seen.has(eventId) || this.#seen.has(messageId);
    this.#seen.add(eventId).add(messageId);
    for (const oldest of this.#seen) {
      if (this.#seen.size <= EVENTS_REMEMBERED) break;
      this.#seen.delete(oldest);
    }
    return known;
  }

  #enqueue(message: FeishuMessage): void {
    const thread = threadOf(message);
    const turn = (this.#turns.get(thread) ?? Promise.resolve())
      .then(() => this.#handle(message, thread))
      .catch((error: unknown) => this.#options.onError?.(error))
      .then(() => {
        if (this.#turns.get(thread) === turn) this.#turns.delete(thread);
      });
    this.#turns.set(thread, turn);
  }

  async #handle(message: FeishuMessage, thread: string): Promise<void> {
    const { source, world, maxFileBytes = MAX_FILE_BYTES, maxFiles = MAX_FILES, onMessage } = this.#options;
    const { signal } = this.#stopping;
    const user = this.#userOf(message);
    const reply = (text: string) => this.#platform.reply(message.messageId, text, signal);
    try {
      const announced = message.files.map((file) => this.#announced(file));
      const limits = { maxBytes: maxFileBytes, maxFiles };
      const files = await receiveFiles(announced, { source, user, thread, signal, world, ...limits });
      await onMessage({ user, thread, text: fillPlaceholders(message.text, files), files, reply }, signal);
    } catch (error) {
      this.#options.onError?.(error);
      if (!signal.aborted) await reply(SORRY);
    }
  }

  #announced(file: FeishuFile): AnnouncedFile {
    const { kind, name, key } = file;
    const fallbackName = `feishu_${key.replace(/[^A-Za-z0-9]/g, "").slice(-12)}.${kind === "image" ? "png" : "bin"}`;
    return { kind, name, fallbackName, open: (signal) => this.#platform.open(file, signal) };
  }

  #userOf({ tenantKey, openId }: FeishuMessage): string {
    return this.#options.userOf?.({ tenantKey, openId }) ?? idOf(tenantKey, openId);
  }
}

/** A private chat is one conversation. In a group, each topic is one, named after its first message. */
function threadOf({ tenantKey, chatId, isPrivate, rootId, messageId }: FeishuMessage): string {
  return isPrivate ? idOf(tenantKey, chatId) : idOf(tenantKey, chatId, rootId ?? messageId);
}

/** Our id for names of the platform: deterministic, and free of collisions. */
function idOf(...names: readonly string[]): string {
  return `feishu-${createHash("sha256").update(JSON.stringify(names)).digest("hex").slice(0, ID_HEX_DIGITS)}`;
}

function checkOptions({ appId, mode, encryptKey, verificationToken }: FeishuOptions): void {
  // With an id of another form the SDK's connection fails silently.
  if (!APP_ID.test(appId)) {
    const problem = "it is cli_ and 16 hexadecimal digits, as the developer console shows it";
    throw new SandlotError("invalid_request", { field: "appId", problem });
  }
  if (mode === "webhook" && !encryptKey && !verificationToken) {
    const problem = "a webhook needs it, or a verificationToken: otherwise any sender could write in another's name";
    throw new SandlotError("invalid_request", { field: "encryptKey", problem });
  }
}
