/**
 * Previews: HTTP and WebSocket into a sandbox, on a separate listener and separate host names.
 *
 *   {port}--{id}.{domain}   no link, a forged or an expired one ─ 401
 *                           a browser with a link in the URL ─ a cookie of this host, then the URL without it
 *                           the cookie, or a program with a link in the URL ─ a lease, a connection to the port,
 *                           the unchanged request
 *   any name                a program with a link in the header `X-Sandlot-Link` ─ likewise; as an upgrade to
 *                           `sandlot-tunnel` bytes to the port and back
 *   any name, /aio/{secret} a client of the AIO API that sends nothing else ─ a lease, a connection to that API
 *
 * Invariants
 * - A link for a frame names the origin that may frame it. Its cookie is partitioned, so it is valid below that page's
 *   site only, and every response says that no other origin may frame it.
 * - Each port of each thread is a separate site to a browser: cookies, storage and scripts of one reach no other, and
 *   none is the gateway's, which refuses their Origin.
 * - The preview's cookies and headers are never passed into the sandbox, and the sandbox cannot set them.
 * - The secret of an AIO URL is passed neither into the sandbox nor into a log.
 * - An address that keeps sending invalid AIO URLs is refused before a shared store is asked. A URL that this gateway has
 *   found valid before is not limited by failures of others at its address.
 * - A request holds a lease while it lasts, so a parked sandbox wakes for it and is not reaped under it. `link-use.ts`
 *   takes the lease, and ends it in time.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { AIO_TUNNEL_PORT, isSandlotError, SandlotError, TUNNEL_PROTOCOL } from "@sandlot/contract";
import type { FastifyBaseLogger } from "fastify";
import { type GatewaySettings, previewScheme } from "../../config/gateway-settings.ts";
import { errorReply, retryAfterSeconds } from "../errors.ts";
import type { RateLimits } from "../guards/rate-limits.ts";
import { checkTarget } from "../guards/web-pages.ts";
import { malformedHandler } from "../malformed.ts";
import type { LeasedSandbox } from "../provisioner/provisioned-leases.ts";
import type { Certificate } from "../tls.ts";
import { type AioAddress, type AioLinks, aioAddress } from "./aio-links.ts";
import { forwardBytes, forwardRequest, forwardUpgrade, headOf } from "./forwarding.ts";
import { cookieOf, type LinkInAddress, linkInAddress } from "./headers.ts";
import { type LinkClaims, type LinkUseParts, useLink } from "./link-use.ts";
import { frameCookie, LINK_HEADER, linkCookie, type PreviewLinks, type PreviewTarget } from "./links.ts";

export interface PreviewParts extends LinkUseParts {
  readonly links: PreviewLinks;
  readonly aioLinks: AioLinks;
  readonly rates: Pick<RateLimits, "checkFailures" | "countFailure">;
  readonly settings: GatewaySettings;
  readonly logger: FastifyBaseLogger;
  readonly certificate: Certificate | null;
  /** Called for each request through the URL of a provisioned sandbox. */
  readonly onProvisionedUse?: (used: LeasedSandbox) => void;
}

export class PreviewServer {
  readonly server: Server;
  readonly #parts: PreviewParts;
  readonly #sockets = new Set<Duplex>();

  constructor(parts: PreviewParts) {
    this.#parts = parts;
    const { headerMaxBytes, headersTimeoutMs, idleConnectionMs, connectionsMax } = parts.settings;
    const options = {
      maxHeaderSize: headerMaxBytes,
      headersTimeout: headersTimeoutMs,
      requestTimeout: 0,
      keepAliveTimeout: idleConnectionMs,
    };
    const answer = (request: IncomingMessage, response: ServerResponse) => void this.#answer(request, response);
    this.server =
      parts.certificate === null
        ? createServer(options, answer)
        : createHttpsServer({ ...options, ...parts.certificate }, answer);
    this.server.maxConnections = connectionsMax;
    const malformed = malformedHandler(parts.settings, parts.world);
    this.server.on("clientError", (error, socket) => malformed(error, socket as Socket));
    this.server.on("upgrade", (request, socket, head) => void this.#upgrade(request, socket, head));
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const id = this.#parts.world.randomHex(8);
    try {
      checkTarget(request);
      const aio = aioAddress(request.url ?? "/");
      if (aio !== null) return await this.#answerAio(request, response, aio);
      const inAddress = linkInAddress(request.url ?? "/");
      const visited = inAddress !== null && isVisit(request) ? this.#targetOf(request, inAddress.token) : null;
      if (inAddress !== null && visited !== null) return this.#welcome(response, visited, inAddress);
      const target = this.#admit(request);
      await this.#proxy(request, response, target);
    } catch (error) {
      this.#refuse(response, error, id);
    }
  }

  /** The link becomes a cookie, so that it is in no URL, history or referrer any more. */
  #welcome(response: ServerResponse, { framedBy }: PreviewTarget, { token, rest }: LinkInAddress): void {
    const scheme = previewScheme(this.#parts.settings);
    const secure = scheme === "https" ? "; Secure" : "";
    response
      .writeHead(302, {
        location: rest,
        "set-cookie":
          framedBy === undefined
            ? `${linkCookie(scheme)}=${token}; Path=/; HttpOnly; SameSite=Lax${secure}`
            : `${frameCookie(scheme)}=${token}; Path=/; HttpOnly; SameSite=None; Secure; Partitioned`,
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
      })
      .end();
  }

  async #answerAio(request: IncomingMessage, response: ServerResponse, address: AioAddress): Promise<void> {
    const { aioLinks, rates, settings } = this.#parts;
    const from = addressOf(request, settings);
    const end = () => void response.destroy();
    using use = await aioLinks.use(address, end, () => rates.checkFailures(from, "AIO URLs"));
    if (use === null) {
      rates.countFailure(from, "AIO URLs");
      throw new SandlotError("unauthorized", { problem: "this AIO URL is unknown, has expired or was revoked" });
    }
    if (request.headers.origin !== undefined)
      throw new SandlotError("forbidden", { problem: "an AIO URL is for programs; web pages may not use it" });
    await this.#proxy(request, response, { ...use.claims, port: AIO_TUNNEL_PORT }, address.path);
  }

  async #proxy(
    request: IncomingMessage,
    response: ServerResponse,
    target: LinkClaims & Pick<PreviewTarget, "port" | "framedBy">,
    aioPath?: string,
  ): Promise<void> {
    const gone = new AbortController();
    response.once("close", () => gone.abort(new Error("the caller has gone away")));
    // Closed before this could listen: nothing would end the lease.
    if (response.destroyed) return;
    const { world } = this.#parts;
    const purpose = aioPath === undefined ? "gateway: preview" : "gateway: AIO URL";
    const end = () => void response.destroy();
    const lease = await useLink(this.#parts, target, { purpose, signal: gone.signal, end });
    if (target.provisioned !== undefined) this.#parts.onProvisionedUse?.(target.provisioned);
    try {
      const connection = await lease.connect(target.port, { signal: gone.signal });
      const { port, framedBy = null } = target;
      const forwarded = { request, connection, port, world, gone: gone.signal, framedBy };
      await forwardRequest(aioPath === undefined ? forwarded : { ...forwarded, aioPath }, response);
    } finally {
      await lease.release();
    }
  }

  async #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    try {
      checkTarget(request);
      await this.#join(request, socket, head, this.#admit(request));
    } catch (thrown) {
      if (!socket.writable) return void socket.destroy();
      const { status, headers, body } = this.#refusal(thrown, this.#parts.world.randomHex(8));
      socket.end(
        `${headOf(status, { ...headers, connection: "close", "content-length": Buffer.byteLength(body) })}${body}`,
      );
    }
  }

  /** Until one side ends, or the link expires. */
  async #join(request: IncomingMessage, socket: Duplex, head: Buffer, target: PreviewTarget): Promise<void> {
    const { world } = this.#parts;
    const { port } = target;
    const gone = new AbortController();
    socket.once("close", () => gone.abort(new Error("the caller has gone away")));
    const end = () => void socket.destroy();
    const lease = await useLink(this.#parts, target, { purpose: "gateway: preview", signal: gone.signal, end });
    try {
      const connection = await lease.connect(port, { signal: gone.signal });
      if (isTunnel(request)) await forwardBytes(connection, TUNNEL_PROTOCOL, socket, head);
      else await forwardUpgrade({ request, connection, port, world, gone: gone.signal, framedBy: null }, socket, head);
    } finally {
      await lease.release();
    }
  }

  #admit(request: IncomingMessage): PreviewTarget {
    const target = this.#inHeader(request) ?? this.#inAddressOrCookie(request);
    if (target === null) throw new SandlotError("unauthorized", { problem: "a preview is reached through its link" });
    const { origin, host } = request.headers;
    const foreign = origin !== undefined && origin.replace(/^https?:\/\//, "") !== host;
    const reads = (request.method === "GET" || request.method === "HEAD") && request.headers.upgrade === undefined;
    if (foreign && !reads) throw new SandlotError("forbidden", { problem: "other sites may not use this preview" });
    return target;
  }

  /** Another site's page cannot send this header without a preflight, so it is valid under any name. */
  #inHeader(request: IncomingMessage): PreviewTarget | null {
    const token = request.headers[LINK_HEADER];
    return typeof token === "string" ? this.#parts.links.verify(token) : null;
  }

  #inAddressOrCookie(request: IncomingMessage): PreviewTarget | null {
    const scheme = previewScheme(this.#parts.settings);
    const inAddress = linkInAddress(request.url ?? "/");
    if (inAddress !== null) return this.#targetOf(request, inAddress.token);
    for (const [name, isFrame] of [[frameCookie(scheme), true] as const, [linkCookie(scheme), false] as const]) {
      const token = cookieOf(request.headers.cookie, name);
      const target = token === undefined ? null : this.#targetOf(request, token);
      if (target !== null && (target.framedBy !== undefined) === isFrame) return target;
    }
    return null;
  }

  /** A token is valid only for the host name it was made for. */
  #targetOf(request: IncomingMessage, token: string): PreviewTarget | null {
    const { links, settings } = this.#parts;
    const target = links.verify(token);
    const name = (request.headers.host ?? "").toLowerCase().replace(/:\d+$/, "");
    return target !== null && name === `${links.labelOf(target, target.port)}.${settings.preview.domain}`
      ? target
      : null;
  }

  #refuse(response: ServerResponse, thrown: unknown, id: string): void {
    if (response.headersSent || response.destroyed) return void response.destroy();
    const { status, headers, body } = this.#refusal(thrown, id);
    response.writeHead(status, headers).end(body);
  }

  #refusal(thrown: unknown, id: string) {
    const problem = thrown instanceof Error ? thrown.message : String(thrown);
    const silence = { sandboxId: "", problem: "nothing answers on that port", retryAfterMs: 1_000 };
    const error = isSandlotError(thrown) ? thrown : new SandlotError("sandbox_unreachable", silence);
    if (!isSandlotError(thrown)) this.#parts.logger.debug({ requestId: id, problem }, "a preview failed");
    const retryAfter = retryAfterSeconds(error);
    const headers = {
      "content-type": "application/json; charset=utf-8",
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
      ...(retryAfter === null ? {} : { "retry-after": String(retryAfter) }),
    };
    return { status: error.status, headers, body: JSON.stringify(errorReply(error, id)) };
  }
}

/** The caller's address; behind a proxy, the one that the proxy names, as for keys. */
function addressOf({ headers, socket }: IncomingMessage, { behindProxy }: GatewaySettings): string {
  const named = behindProxy
    ? String(headers["x-forwarded-for"] ?? "")
        .split(",", 1)[0]
        ?.trim()
    : undefined;
  return named || (socket.remoteAddress ?? "");
}

/** Requested by a program with a link in the header. */
function isTunnel({ headers }: IncomingMessage): boolean {
  return headers.upgrade === TUNNEL_PROTOCOL && headers[LINK_HEADER] !== undefined;
}

/** Whether a browser opens a page, and will keep a cookie. A program sends its link each time. */
function isVisit({ method, headers }: IncomingMessage): boolean {
  const mode = headers["sec-fetch-mode"];
  const reads = method === "GET" || method === "HEAD";
  return reads && (mode === undefined ? (headers.accept ?? "").includes("text/html") : mode === "navigate");
}
