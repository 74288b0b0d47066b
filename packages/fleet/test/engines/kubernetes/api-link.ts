/**
 * The gateways' way to the API server: a proxy with a certificate of the cluster, which can be made to fail. Only the
 * gateways use it, so the cluster itself goes on.
 *
 *   open     passes everything
 *   away     refuses connections, and has broken the open ones
 *   silent   takes requests and answers none; open watches say nothing
 *   harmful  with chances from the seed: late, 409 to changes, 429, 500, 503, answers that are lost after the request took
 *            effect; and in turn watches that are cut without an end, and watches that begin with 410
 *
 * `expireWatches` answers the next watches with 410, as after a compaction.
 */

import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Agent, createServer, request as secureRequest } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
export type LinkState = "open" | "away" | "silent" | "harmful";

/** The API server behind the link. */
export interface Linked {
  readonly server: string;
  /** What `up.sh` keeps: `pki/` has the certificates. */
  readonly directory: string;
}

/** Chance from a seed: from 0 (included) to 1 (excluded). */
export interface Chance {
  unit(): number;
}

const LATE_MAX_MS = 1_500;
const WATCH_CUT_MAX_MS = 8_000;
const WATCH_HARMS = [null, "cut", "410"] as const;
export const HARMS = ["lost", "429", "503", "500", "409", "late", "410", "cut"] as const;
export type Harm = (typeof HARMS)[number];

export class ApiLink {
  readonly url: string;
  readonly #server: ReturnType<typeof createServer>;
  readonly #agent: Agent;
  readonly #target: URL;
  readonly #chance: Chance;
  readonly #sockets = new Set<Socket>();
  readonly #watches = new Set<ServerResponse>();
  #state: LinkState = "open";
  #expiring = 0;
  #watchCount = 0;
  /** What was done to requests. */
  readonly harm = new Map<Harm, number>();

  private constructor(server: ReturnType<typeof createServer>, linked: Linked, chance: Chance) {
    this.#server = server;
    this.#target = new URL(linked.server);
    this.#chance = chance;
    const pki = (name: string) => readFileSync(join(linked.directory, "pki", name));
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

  static async open(linked: Linked, chance: Chance): Promise<ApiLink> {
    const pki = (name: string) => readFileSync(join(linked.directory, "pki", name));
    const server = createServer({ cert: pki("apiserver.crt"), key: pki("apiserver.key") });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new ApiLink(server, linked, chance);
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
      return this.#expired(response);
    }
    const harm = this.#state !== "harmful" ? null : isWatch ? this.#nextForWatch() : this.#draw(request.method);
    if (harm === "410") return this.#expired(response);
    if (harm !== null) this.#count(harm);
    if (harm === "late") await sleep(this.#chance.unit() * LATE_MAX_MS);
    if (harm === "409" || harm === "429" || harm === "500" || harm === "503") return refuse(request, response, harm);
    if (isWatch) {
      this.#watches.add(response);
      response.on("close", () => this.#watches.delete(response));
    }
    if (harm === "cut") {
      const cut = setTimeout(() => request.socket.destroy(), this.#chance.unit() * WATCH_CUT_MAX_MS);
      response.on("close", () => clearTimeout(cut));
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

  #expired(response: ServerResponse): void {
    this.#count("410");
    const object = { ...statusOf(410), reason: "Expired", message: "too old" };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(`${JSON.stringify({ type: "ERROR", object })}\n`);
  }

  #draw(method: string | undefined): Harm | null {
    const drawn = this.#chance.unit();
    if (drawn < 0.08) return "lost";
    if (drawn < 0.14) return "429";
    if (drawn < 0.18) return "503";
    if (drawn < 0.2) return "500";
    if (drawn < 0.25) return method === "GET" ? null : "409";
    return drawn < 0.45 ? "late" : null;
  }

  /** In turn: a run has few watches. */
  #nextForWatch(): Harm | null {
    this.#watchCount += 1;
    return WATCH_HARMS[this.#watchCount % WATCH_HARMS.length] ?? null;
  }

  #count(what: Harm): void {
    this.harm.set(what, (this.harm.get(what) ?? 0) + 1);
  }
}

/** Before it took effect. */
function refuse(request: IncomingMessage, response: ServerResponse, harm: "409" | "429" | "500" | "503"): void {
  const reason = harm !== "409" ? "Chaos" : request.method === "POST" ? "AlreadyExists" : "Conflict";
  const retry = harm === "429" ? { "retry-after": "1" } : {};
  response.writeHead(Number(harm), { "content-type": "application/json", ...retry });
  response.end(JSON.stringify({ ...statusOf(Number(harm)), reason }));
}

function statusOf(code: number): object {
  return { kind: "Status", apiVersion: "v1", status: "Failure", code, reason: "Chaos", message: "chaos" };
}
