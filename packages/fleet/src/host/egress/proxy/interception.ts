/**
 * Terminates TLS for hosts that a secret is bound to by `via: https`, and for registries.
 *
 *   sandbox ── TLS, certificate of the sandbox's own authority ──▶ proxy ── TLS, fully verified ──▶ host
 *
 * A tunnel serves one host: a request that names another one is refused, so that no secret goes to a wrong host.
 */

import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { createSecureContext, type SecureContext, TLSSocket } from "node:tls";
import { type Authority, parseAuthority, writtenAuthority } from "../../../backend/network/host-name.ts";
import { type CompiledPolicy, type CompiledSecret, secretsFor } from "../../../backend/network/policy.ts";
import type { World } from "../../../world/world.ts";
import type { Authority as CertificateAuthority } from "../certificates/authority.ts";
import { issueCertificate, LEAF_LIFETIME_MS } from "../certificates/authority.ts";
import type { EgressLimits } from "../limits.ts";
import { isRefused } from "../rules/decide.ts";
import { Refused } from "./dialer.ts";
import { boundSecrets, type Forwarding, forward, requestHeaders, responseHeaders } from "./forwarding.ts";
import { Redactor } from "./redaction.ts";
import type { RegistryGate } from "./registry-gate.ts";
import { plain, type Reply, sendRawReply, sendReply } from "./replies.ts";
import { tie } from "./tunnel.ts";
import type { Upstream } from "./upstream.ts";

export interface InterceptionOptions {
  readonly policy: CompiledPolicy;
  readonly authority: CertificateAuthority;
  readonly upstream: Upstream;
  readonly registries: RegistryGate;
  readonly world: World;
  readonly limits: EgressLimits;
  replyTo(error: unknown): Reply;
}

export class Interception {
  readonly #options: InterceptionOptions;
  readonly #server: Server;
  readonly #targets = new WeakMap<Duplex, Authority>();
  readonly #contexts = new Map<string, { readonly context: SecureContext; readonly until: number }>();

  constructor(options: InterceptionOptions) {
    this.#options = options;
    // Never listens: it receives connections after the TLS handshake.
    this.#server = createServer({
      maxHeaderSize: options.limits.headBytesMax,
      keepAliveTimeout: options.limits.keepAliveTimeoutMs,
      requestTimeout: 0,
    });
    this.#server.on("request", (request, response) => this.#onRequest(request, response));
    this.#server.on("upgrade", (request, socket, head) => this.#onUpgrade(request, socket, head));
    this.#server.on("clientError", (_error, socket) => sendRawReply(socket, plain(400, "This is not HTTP.")));
  }

  wants(target: Authority): boolean {
    if (this.#options.registries.has("https", target)) return true;
    return secretsFor(this.#options.policy, "https", target.host, target.port).length > 0;
  }

  /** Takes over the client's side of a tunnel after the response to CONNECT. */
  accept(client: Socket, target: Authority): void {
    const { world, limits } = this.#options;
    const secured = new TLSSocket(client, {
      isServer: true,
      secureContext: this.#contextFor(target.host.text),
      ALPNProtocols: ["http/1.1"],
    });
    const timer = world.timer(limits.headTimeoutMs, () => client.destroy(), { background: true });
    this.#targets.set(secured, target);
    secured.once("secure", () => {
      timer.cancel();
      this.#server.emit("connection", secured);
    });
    secured.on("error", () => client.destroy());
    client.once("close", () => {
      timer.cancel();
      secured.destroy();
    });
  }

  #onRequest(request: IncomingMessage, response: ServerResponse): void {
    const forwarding = this.#forwarding(request, (reply) => sendReply(response, reply));
    if (forwarding !== null) forward(request, response, forwarding);
  }

  /** WebSockets. Extensions are not offered on: a compressed stream could not be searched for the value. */
  #onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on("error", () => socket.destroy());
    const forwarding = this.#forwarding(request, (reply) => sendRawReply(socket, reply));
    if (forwarding === null) return;
    if (request.headers.upgrade?.toLowerCase() !== "websocket") {
      sendRawReply(socket, plain(501, "Only an upgrade to websocket is passed on."));
      return;
    }
    const { "sec-websocket-extensions": _dropped, ...headers } = requestHeaders(request, forwarding);
    const outgoing = httpRequest({
      ...forwarding.upstream.requestTo(forwarding.target, true),
      path: forwarding.path,
      headers: { ...headers, connection: "Upgrade", upgrade: "websocket" },
    });
    const values = forwarding.bound.hidden;
    outgoing.on("error", (error) => forwarding.fail(error));
    outgoing.once("response", (incoming) => {
      incoming.resume();
      sendRawReply(socket, plain(502, `The host answered ${incoming.statusCode} to the upgrade.`));
    });
    outgoing.once("upgrade", (incoming, upstream, upstreamHead) => {
      socket.write(rawHead(incoming, values));
      if (upstreamHead.length > 0) upstream.unshift(upstreamHead);
      if (head.length > 0) socket.unshift(head);
      tie(socket, upstream, { inspect: new Redactor(values) });
    });
    socket.once("close", () => outgoing.destroy());
    outgoing.end();
  }

  /** `null` when a refusal was already sent. */
  #forwarding(request: IncomingMessage, refuse: (reply: Reply) => void): Forwarding | null {
    const target = this.#targets.get(request.socket);
    if (target === undefined) throw new TypeError("a request on a connection that was never accepted");
    const named = parseAuthority(request.headers.host ?? "", 443);
    if (named === null || writtenAuthority(named) !== writtenAuthority(target)) {
      refuse(plain(421, `This tunnel leads to ${writtenAuthority(target)}; the request names another host.`));
      return null;
    }
    if (request.method === "TRACE" || !request.url?.startsWith("/")) {
      refuse(plain(request.method === "TRACE" ? 405 : 400, "This request is not passed on."));
      return null;
    }
    const { registries, policy, upstream } = this.#options;
    const fail = (error: unknown): void => refuse(this.#options.replyTo(error));
    const registry = registries.decide("https", request, target, request.url);
    if (registry !== null) {
      if (!isRefused(registry)) return registries.forwarding(registry, { target, path: request.url, fail });
      fail(new Refused(registry));
      return null;
    }
    const secrets = secretsFor(policy, "https", target.host, target.port);
    const isGit = isGitRequest(request.url);
    return {
      ...{ target, defaultPort: 443, path: request.url, bound: boundSecrets(secrets), upstream, fail },
      instead: (incoming) => (isGit && incoming.statusCode === 401 ? secretRefused(secrets, target) : null),
    };
  }

  #contextFor(host: string): SecureContext {
    const { authority, world } = this.#options;
    const known = this.#contexts.get(host);
    if (known !== undefined && known.until > world.wallMs()) return known.context;
    const { certificatePem, keyPem } = issueCertificate(authority, host, world.wallMs());
    const context = createSecureContext({ cert: certificatePem, key: keyPem, minVersion: "TLSv1.2" });
    this.#contexts.set(host, { context, until: world.wallMs() + LEAF_LIFETIME_MS / 2 });
    return context;
  }
}

/** A request of git's protocol over HTTP. */
function isGitRequest(path: string): boolean {
  return /\/(?:info\/refs\?service=git-(?:upload|receive)-pack|git-(?:upload|receive)-pack)(?:&|$)/.test(path);
}

/** git would ask for a name and a password on a 401. It prints the text of a 403. */
function secretRefused(secrets: readonly CompiledSecret[], { host }: Authority): Reply | null {
  if (secrets.length === 0) return null;
  const names = secrets.map(({ name }) => name).join(", ");
  return plain(
    403,
    `${host.text} refuses the bound secret ${names}. The operator of Sandlot changes its value in the blueprint's network.secrets.`,
  );
}

function rawHead(incoming: IncomingMessage, values: readonly string[]): string {
  const headers: Record<string, string | string[]> = { ...responseHeaders(incoming, values) };
  const lines = Object.entries({ ...headers, connection: "Upgrade", upgrade: "websocket" }).flatMap(([name, value]) =>
    [value].flat().map((one) => `${name}: ${one}\r\n`),
  );
  return `HTTP/1.1 101 Switching Protocols\r\n${lines.join("")}\r\n`;
}
