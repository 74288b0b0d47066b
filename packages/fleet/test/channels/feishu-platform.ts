/**
 * A stand-in for Feishu's open platform on the loopback: tokens that expire, files that belong to one message each,
 * rate limits, broken downloads, events over a long connection in its binary frames or by signed webhook, and repeated
 * events.
 */

import { createCipheriv, createHash, randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import { decodeFrame, encodeFrame } from "./feishu-frames.ts";

export const APP_ID = "cli_0123456789abcdef";
export const APP_SECRET = "the-app-secret";

export interface StoredFile {
  readonly content: Buffer;
  readonly name?: string;
  /** This many downloads end in the middle. */
  broken?: number;
  /** Begins and never ends. */
  readonly stuck?: boolean;
  /** Announces no length. */
  readonly chunked?: boolean;
}

export class FeishuStandIn implements AsyncDisposable {
  /** By `messageId/fileKey`. */
  readonly files = new Map<string, StoredFile>();
  readonly replies: { readonly messageId: string; readonly text: string; readonly uuid: string }[] = [];
  readonly requests: string[] = [];
  /** Acknowledgements of events, by the id of the frame. */
  readonly acknowledged = new Map<string, number>();
  tokensIssued = 0;
  /** Requests with an expired token. */
  tokensRefused = 0;
  /** Downloads that their reader ended early. */
  downloadsEnded = 0;
  /** The next requests are refused like this. */
  readonly refusals: ("rate-limit" | "server-error" | "silence")[] = [];
  /** How often a client may try to reconnect; -1: without limit. */
  reconnectCount = -1;
  /** Every connection is refused. */
  isDown = false;
  #token = "";
  #socket: WebSocket | null = null;
  readonly #pinged = new WeakSet<WebSocket>();
  #frames = 0;
  readonly #server = createServer((request, response) => void this.#serve(request, response));
  readonly #sockets = new WebSocketServer({ noServer: true });

  async listen(): Promise<string> {
    this.#server.on("upgrade", (request, socket, head) =>
      this.#sockets.handleUpgrade(request, socket, head, (opened) => this.#attach(opened)),
    );
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The clients' token is no longer accepted. */
  expireToken(): void {
    this.#token = "";
  }

  /** Sends an event over the long connection, `times` times, as the platform does without an acknowledgement. */
  async push(event: object, times = 1, frames = 1): Promise<void> {
    const whole = Buffer.from(JSON.stringify(event));
    const size = Math.ceil(whole.length / frames);
    for (let time = 0; time < times; time++) {
      const id = `frame-${++this.#frames}`;
      for (let seq = 0; seq < frames; seq++) {
        const headers = { type: "event", message_id: id, sum: String(frames), seq: String(seq), trace_id: id };
        const payload = whole.subarray(seq * size, (seq + 1) * size);
        this.#socket?.send(encodeFrame({ seqId: this.#frames, logId: 1, service: 1, method: 1, headers, payload }));
      }
      await waitFor(() => this.acknowledged.has(id));
    }
  }

  /** The connection breaks; the SDK reconnects by itself. */
  dropConnection(): void {
    this.#socket?.terminate();
    this.#socket = null;
  }

  async connected(timeoutMs?: number): Promise<void> {
    // The client listens from its first ping on; earlier events are lost.
    await waitFor(() => this.#socket !== null && this.#pinged.has(this.#socket), timeoutMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets.clients) socket.terminate();
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #attach(socket: WebSocket): void {
    this.#socket = socket;
    socket.on("message", (data: Buffer) => {
      const { headers, payload } = decodeFrame(data);
      if (headers.type === "ping") {
        const config = JSON.stringify({
          PingInterval: 60,
          ReconnectCount: this.reconnectCount,
          ReconnectInterval: 1,
          ReconnectNonce: 0,
        });
        const pong = {
          seqId: 0,
          logId: 0,
          service: 1,
          method: 0,
          headers: { type: "pong" },
          payload: Buffer.from(config),
        };
        socket.send(encodeFrame(pong));
        this.#pinged.add(socket);
      } else if (headers.type === "event") {
        const { code } = JSON.parse(payload.toString()) as { code: number };
        this.acknowledged.set(headers.message_id ?? "", code);
      }
    });
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "", "http://stand-in");
    const body = await bodyOf(request);
    this.requests.push(`${request.method} ${url.pathname}${url.search}`);
    if (url.pathname === "/open-apis/auth/v3/tenant_access_token/internal") return this.#issueToken(body, response);
    if (url.pathname === "/callback/ws/endpoint") return this.#endpoint(body, response);
    const refusal = this.refusals.shift();
    if (refusal === "rate-limit")
      return json(
        response,
        429,
        { code: 99_991_400, msg: "request trigger frequency limit" },
        { "x-ogw-ratelimit-reset": "0.05" },
      );
    if (refusal === "silence") return;
    if (refusal === "server-error") return json(response, 502, { code: 502, msg: "bad gateway" });
    if (this.#token === "" || request.headers.authorization !== `Bearer ${this.#token}`) {
      this.tokensRefused += 1;
      return json(response, 400, { code: 99_991_663, msg: "Invalid access token for authorization." });
    }
    const resource = /^\/open-apis\/im\/v1\/messages\/([^/]+)\/resources\/([^/]+)$/.exec(url.pathname);
    if (resource !== null) return this.#sendFile(`${resource[1]}/${resource[2]}`, response);
    const replied = /^\/open-apis\/im\/v1\/messages\/([^/]+)\/reply$/.exec(url.pathname);
    if (replied !== null) return this.#takeReply(String(replied[1]), body, response);
    json(response, 404, { code: 404, msg: "not found" });
  }

  #issueToken(body: Record<string, unknown>, response: ServerResponse): undefined {
    if (body.app_id !== APP_ID || body.app_secret !== APP_SECRET)
      return json(response, 200, { code: 10_014, msg: "app secret invalid" });
    this.tokensIssued += 1;
    this.#token = `t-${randomBytes(8).toString("hex")}`;
    json(response, 200, { code: 0, msg: "ok", tenant_access_token: this.#token, expire: 7_200 });
  }

  #endpoint(body: Record<string, unknown>, response: ServerResponse): undefined {
    if (body.AppID !== APP_ID || body.AppSecret !== APP_SECRET)
      return json(response, 200, { code: 1_000_040_345, msg: "invalid app", data: {} });
    if (this.isDown) return json(response, 503, { code: 1, msg: "service unavailable" });
    const { port } = this.#server.address() as AddressInfo;
    const ReconnectCount = this.reconnectCount;
    const ClientConfig = { PingInterval: 60, ReconnectCount, ReconnectInterval: 1, ReconnectNonce: 0 };
    json(response, 200, {
      code: 0,
      msg: "",
      data: { URL: `ws://127.0.0.1:${port}/ws?device_id=d&service_id=1`, ClientConfig },
    });
  }

  #sendFile(key: string, response: ServerResponse): undefined {
    const file = this.files.get(key);
    if (file === undefined) return json(response, 400, { code: 234_003, msg: "File not in msg." });
    const isBroken = (file.broken ?? 0) > 0;
    if (isBroken) file.broken = (file.broken ?? 0) - 1;
    response.writeHead(200, {
      "content-type": "application/octet-stream",
      ...(file.chunked ? {} : { "content-length": String(file.content.length) }),
      ...(file.name === undefined
        ? {}
        : { "content-disposition": `attachment; filename*=UTF-8''${encodeURIComponent(file.name)}` }),
    });
    response.once("close", () => {
      if (!response.writableFinished && !isBroken) this.downloadsEnded += 1;
    });
    if (file.stuck) response.write(file.content.subarray(0, 1));
    else if (!isBroken) response.end(file.content);
    else response.write(file.content.subarray(0, Math.ceil(file.content.length / 2)), () => response.destroy());
  }

  #takeReply(messageId: string, body: Record<string, unknown>, response: ServerResponse): undefined {
    const { text } = JSON.parse(String(body.content)) as { text: string };
    const uuid = String(body.uuid);
    // The platform shows a reply with the same uuid once.
    if (!this.replies.some((reply) => reply.uuid === uuid)) this.replies.push({ messageId, text, uuid });
    json(response, 200, { code: 0, msg: "success", data: { message_id: `om_reply_${this.replies.length}` } });
  }
}

/** The body and the headers of a webhook, as the platform seals and signs them. */
export function sealed(event: object, encryptKey: string): { body: string; headers: Record<string, string> } {
  const iv = randomBytes(16);
  const cipher = createCipheriv("aes-256-cbc", createHash("sha256").update(encryptKey).digest(), iv);
  const encrypt = Buffer.concat([iv, cipher.update(JSON.stringify(event)), cipher.final()]).toString("base64");
  const body = JSON.stringify({ encrypt });
  const [timestamp, nonce] = ["1700000000", "abc"];
  const signature = createHash("sha256")
    .update(timestamp + nonce + encryptKey + body)
    .digest("hex");
  const headers = {
    "x-lark-request-timestamp": timestamp,
    "x-lark-request-nonce": nonce,
    "x-lark-signature": signature,
  };
  return { body, headers: { ...headers, "content-type": "application/json" } };
}

function json(response: ServerResponse, status: number, body: object, headers: Record<string, string> = {}): undefined {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

async function bodyOf(request: IncomingMessage): Promise<Record<string, unknown>> {
  let text = "";
  for await (const piece of request) text += String(piece);
  return text === "" ? {} : (JSON.parse(text) as Record<string, unknown>);
}

export async function waitFor(condition: () => boolean, timeoutMs = 10_000): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error("waited in vain");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
