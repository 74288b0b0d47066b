/**
 * The proxy's keep-alive connections to upstream hosts.
 *
 * A kept connection belongs to one host and port, and the policy was applied when it was opened. A request with a body
 * gets a new one: a kept connection may close at the moment of use, and a body that was sent cannot be sent again.
 */

import { Agent, type ClientRequestArgs } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import tls, { connect as connectTls, type TLSSocket } from "node:tls";
import { type Authority, writtenAuthority } from "../../../backend/network/host-name.ts";
import type { World } from "../../../world/world.ts";
import type { EgressLimits } from "../limits.ts";
import { type Dialer, Unreachable } from "./dialer.ts";

const FREE_CONNECTIONS_MAX = 16;

export interface UpstreamOptions {
  readonly dialer: Dialer;
  readonly world: World;
  readonly limits: EgressLimits;
  readonly via: "http" | "https";
  /** Certificates to trust besides the usual ones. */
  readonly extraCa?: readonly string[] | undefined;
}

export class Upstream {
  readonly #kept: HostAgent;
  readonly #fresh: HostAgent;

  constructor(options: UpstreamOptions) {
    const timeout = options.limits.keepAliveTimeoutMs;
    this.#kept = new HostAgent({ keepAlive: true, maxFreeSockets: FREE_CONNECTIONS_MAX, timeout }, options);
    this.#fresh = new HostAgent({ keepAlive: false }, options);
  }

  /** For `http.request`: the connection pool, and the target. */
  requestTo(target: Authority, fresh: boolean): ClientRequestArgs {
    const agent = fresh ? this.#fresh : this.#kept;
    return { agent, host: target.host.text, port: target.port, setHost: false, [TARGET]: target } as ClientRequestArgs;
  }

  close(): void {
    this.#kept.destroy();
    this.#fresh.destroy();
  }
}

const TARGET = Symbol("target");

class HostAgent extends Agent {
  readonly #options: UpstreamOptions;

  constructor(agentOptions: ConstructorParameters<typeof Agent>[0], options: UpstreamOptions) {
    super(agentOptions);
    this.#options = options;
  }

  override createConnection(
    options: ClientRequestArgs & { [TARGET]?: Authority },
    done?: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    const target = options[TARGET];
    if (target === undefined) throw new TypeError("a connection without a target");
    this.#open(target).then(
      (socket) => done?.(null, socket),
      // Node calls back with an error alone; its types require both.
      (error: unknown) => (done as (error: unknown) => void)?.(error),
    );
    return undefined;
  }

  async #open(target: Authority): Promise<Socket> {
    const socket = await this.#options.dialer.dial(target);
    return this.#options.via === "http" ? socket : this.#secure(target, socket);
  }

  /** Full verification, against the name that the policy has allowed. */
  #secure(target: Authority, socket: Socket): Promise<TLSSocket> {
    const { world, limits, extraCa = [] } = this.#options;
    return new Promise((resolve, reject) => {
      // The default ones include those of NODE_EXTRA_CA_CERTS.
      const ca = extraCa.length === 0 ? {} : { ca: [...tls.getCACertificates("default"), ...extraCa] };
      const secured = connectTls({ socket, servername: target.host.text, ALPNProtocols: ["http/1.1"], ...ca });
      const fail = (problem: string): void => {
        timer.cancel();
        secured.destroy();
        reject(new Unreachable(502, `TLS with ${writtenAuthority(target)} failed (${problem}).`));
      };
      const onError = (error: Error & { code?: string }): void => fail(error.code ?? error.message);
      const timer = world.timer(limits.headTimeoutMs, () => fail("no answer"));
      secured.once("error", onError);
      secured.once("secureConnect", () => {
        timer.cancel();
        secured.off("error", onError);
        resolve(secured);
      });
    });
  }
}
