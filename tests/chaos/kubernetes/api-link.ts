/**
 * The gateways' way to the API server: a proxy with a certificate of the cluster, which can be made to fail. Only the
 * gateways use it, so the cluster itself goes on.
 *
 *   open     passes everything
 *   away     refuses connections, and has broken the open ones
 *   silent   takes requests and answers none; open watches say nothing
 *   harmful  with chances from the seed: late, 429, 500, 503, and answers that are lost after the request took effect
 *
 * `expireWatches` answers the next watches with 410, as after a compaction.
 */

import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Agent, createServer, request as secureRequest } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Random } from "../../simulation/schedule/random.ts";
import type { Cluster } from "./cluster.ts";

export type LinkState = "open" | "away" | "silent" | "harmful";

const LATE_MAX_MS = 1_500;

export class ApiLink {
  readonly url: string;
  readonly #server: ReturnType<typeof createServer>;
  readonly #agent: Agent;
  readonly #target: URL;
  readonly #random: Random;
  readonly #sockets = new Set<Socket>();
  readonly #watches = new Set<ServerResponse>();
  #state: LinkState = "open";
  #expiring = 0;
  /** What was done to requests. */
  readonly harm = new Map<string, number>();

  private constructor(server: ReturnType<typeof createServer>, cluster: Cluster, random: Random) {
    this.#server = server;
    this.#target = new URL(cluster.api.server);
    this.#random = random;
    const pki = (name: string) => readFileSync(join(cluster.directory, "pki", name));
    this.#agent = new Agent({
      ...{ keepAlive: true, maxSockets: 64, ca: pki("ca.crt"), cert: pki("admin.crt"), key: pki("admin.key") },
    });
    this.url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on("connection", (socket: Socket) => {
      if (this.#state === "away") return void socket.destroy();
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket)).on("error", () => {});
    });
    server.on("request", (request, response) => void this.#serve(request, response).catch(() => response.destroy()));
  }

  static async open(cluster: Cluster, random: Random): Promise<ApiLink> {
    const pki = (name: string) => readFileSync(join(cluster.directory, "pki", name));
    const server = createServer({ cert: pki("apiserver.crt"), key: pki("apiserver.key") });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new ApiLink(server, cluster, random);
  }

  set(state: LinkState): void {
    this.#state = state;
    if (state === "away") this.#cut();
    // What was held back while it was silent has no answer any more.
    if (state === "open") this.#cut();
  }

  /** Open watches end, and the next `count` begin with 410. */
  expireWatches(count: number): void {
    this.#expiring = count;
    for (const response of this.#watches) response.destroy();
  }

  close(): void {
    this.#cut();
    this.#server.close();
    this.#agent.destroy();
  }

  #cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const isWatch = /[?&]watch=1/.test(request.url ?? "");
    const isSilent = () => this.#state === "silent";
    if (isSilent()) return;
    if (isWatch && this.#expiring > 0) {
      this.#expiring -= 1;
      this.#count("410");
      const object = {
        kind: "Status",
        apiVersion: "v1",
        status: "Failure",
        code: 410,
        reason: "Expired",
        message: "too old",
      };
      response.writeHead(200, { "content-type": "application/json" });
      response.end(`${JSON.stringify({ type: "ERROR", object })}\n`);
      return;
    }
    const harm = this.#state === "harmful" ? this.#draw() : null;
    if (harm !== null) this.#count(harm);
    if (harm === "late") await sleep(this.#random.unit() * LATE_MAX_MS);
    if (harm === "429" || harm === "500" || harm === "503") {
      const status = {
        kind: "Status",
        apiVersion: "v1",
        status: "Failure",
        code: Number(harm),
        reason: "Chaos",
        message: "chaos",
      };
      response.writeHead(Number(harm), {
        "content-type": "application/json",
        ...(harm === "429" && { "retry-after": "1" }),
      });
      response.end(JSON.stringify(status));
      return;
    }
    if (isWatch) {
      this.#watches.add(response);
      response.on("close", () => this.#watches.delete(response));
    }
    const { host: _, ...headers } = request.headers;
    const passed = secureRequest(
      new URL(request.url ?? "/", this.#target),
      { method: request.method ?? "GET", headers, agent: this.#agent },
      (answer) => {
        // The request has taken effect, and its answer is lost.
        if (harm === "lost") {
          answer.resume();
          return void request.socket.destroy();
        }
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.on("data", (data: Buffer) => {
          if (!isSilent()) response.write(data);
        });
        answer.on("end", () => {
          if (!isSilent()) response.end();
        });
        answer.on("error", () => response.destroy());
      },
    );
    passed.on("error", () => response.destroy());
    response.on("close", () => passed.destroy());
    request.pipe(passed);
  }

  #draw(): string | null {
    const drawn = this.#random.unit();
    if (drawn < 0.08) return "lost";
    if (drawn < 0.14) return "429";
    if (drawn < 0.18) return "503";
    if (drawn < 0.2) return "500";
    return drawn < 0.45 ? "late" : null;
  }

  #count(what: string): void {
    this.harm.set(what, (this.harm.get(what) ?? 0) + 1);
  }
}
