/**
 * A gateway of a later version: a real one, behind a server that changes its responses. JSON has more fields and new
 * words, streams have events unknown to this version, and on demand every response is an error of a later version.
 */

import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { GATEWAY_HEADERS } from "@sandlot/contract";
import { type WebSocket, WebSocketServer, WebSocket as WsClient } from "ws";
import { grow, type Json, LATER_ERROR, rewordBy, type Schema } from "./growth.ts";

export interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
}

interface Operation {
  readonly operationId: string;
  readonly requestBody?: { readonly content: Readonly<Record<string, unknown>> };
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { readonly schema: Schema }>> }>
  >;
}

export interface LaterGateway {
  readonly url: string;
  /** Requested routes, as the document names them, and how often each was changed. */
  readonly changed: Map<string, number>;
  /** Every response is an error of a later version. */
  fails: boolean;
  /** The announced version; `null`: none. */
  protocol: string | null;
  close(): Promise<void>;
}

export async function laterGateway(behind: string, document: Document): Promise<LaterGateway> {
  const changed = new Map<string, number>();
  const routes = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      name: `${method.toUpperCase()} ${path}`,
      method: method.toUpperCase(),
      pattern: new RegExp(`^${path.replace(/\{path\}/g, ".+").replace(/\{[^}]+\}/g, "[^/]+")}$`),
      operation,
    })),
  );
  const routeOf = (method: string | undefined, url: string) => {
    const [path = ""] = url.split("?");
    return routes.find((one) => one.method === method && one.pattern.test(path));
  };
  const note = (name: string) => changed.set(name, (changed.get(name) ?? 0) + 1);
  const self = { fails: false, protocol: "1.9" as string | null };

  const answer = (incoming: IncomingMessage, response: ServerResponse): void => {
    const route = routeOf(incoming.method, incoming.url ?? "");
    if (self.fails) {
      incoming.resume();
      if (route !== undefined) note(route.name);
      const body = JSON.stringify(grow({ error: LATER_ERROR } as unknown as Json));
      response.writeHead(418, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
      response.end(body);
      return;
    }
    const { method, url, headers } = incoming;
    const asked = request(behind + url, { method, headers: { ...headers, host: new URL(behind).host } });
    asked.on("error", () => response.destroy());
    asked.once("response", (got) => {
      const status = got.statusCode ?? 0;
      const { "content-length": _, "transfer-encoding": __, ...kept } = got.headers;
      const announced = self.protocol === null ? {} : { [GATEWAY_HEADERS.protocol]: self.protocol };
      delete kept[GATEWAY_HEADERS.protocol];
      const type = String(got.headers["content-type"] ?? "");
      const all = { ...kept, ...announced };
      if (type.startsWith("text/event-stream")) {
        response.writeHead(status, all);
        if (route !== undefined) note(route.name);
        changeEvents(got, response);
        return;
      }
      const parts: Buffer[] = [];
      got.on("data", (part: Buffer) => parts.push(part));
      got.on("end", () => {
        let body = Buffer.concat(parts);
        if (type.startsWith("application/json") && body.length > 0) {
          const schema = route?.operation.responses[status]?.content?.["application/json"]?.schema;
          const value = JSON.parse(body.toString("utf8")) as Json;
          body = Buffer.from(JSON.stringify(grow(rewordBy(value, schema, document.components.schemas))));
        }
        if (route !== undefined) note(route.name);
        const length = status === 204 || status === 304 ? {} : { "content-length": body.length };
        response.writeHead(status, { ...all, ...length });
        response.end(body);
      });
    });
    incoming.pipe(asked);
  };

  const server = createServer(answer);
  const sockets = new WebSocketServer({ noServer: true, handleProtocols: (offered) => [...offered][0] ?? false });
  const open = new Set<Duplex>();
  server.on("upgrade", (incoming: IncomingMessage, socket: Duplex, head: Buffer) => {
    open.add(socket);
    const route = routeOf(incoming.method, incoming.url ?? "");
    if (route?.operation.operationId !== "attachTerminal") return passThrough(behind, incoming, socket, head, open);
    note(route.name);
    sockets.handleUpgrade(incoming, socket, head, (client) => changeTerminal(behind, incoming, client));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    changed,
    get fails() {
      return self.fails;
    },
    set fails(value) {
      self.fails = value;
    },
    get protocol() {
      return self.protocol;
    },
    set protocol(value) {
      self.protocol = value;
    },
    async close() {
      for (const socket of open) socket.destroy();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** An unknown event before each event, and more fields in each. */
function changeEvents(got: IncomingMessage, response: ServerResponse): void {
  let text = "";
  got.setEncoding("utf8");
  got.on("data", (part: string) => {
    text += part;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const block = text.slice(0, end);
      text = text.slice(end + 2);
      const [, data] = /^data: (.*)$/m.exec(block) ?? [];
      if (data === undefined) response.write(`${block}\n\n`);
      else {
        const later = { type: "later-happened", path: "/later", at: 1, instance: "i-later", later: true };
        response.write(`event: later-happened\ndata: ${JSON.stringify(later)}\n\n`);
        response.write(
          `${block.replace(/^data: .*$/m, `data: ${JSON.stringify(grow(JSON.parse(data) as Json))}`)}\n\n`,
        );
      }
    }
  });
  got.on("end", () => response.end());
  got.on("error", () => response.destroy());
  response.on("close", () => got.destroy());
}

function changeTerminal(behind: string, incoming: IncomingMessage, client: WebSocket): void {
  const protocols = String(incoming.headers["sec-websocket-protocol"] ?? "").split(/, ?/);
  const inner = new WsClient(behind.replace(/^http/, "ws") + incoming.url, protocols);
  const waiting: (readonly [Buffer, boolean])[] = [];
  client.on("message", (data: Buffer, isBinary) => {
    if (inner.readyState === inner.OPEN) inner.send(data, { binary: isBinary });
    else waiting.push([data, isBinary]);
  });
  inner.on("open", () => {
    for (const [data, binary] of waiting) inner.send(data, { binary });
  });
  inner.on("message", (data: Buffer, isBinary) => {
    if (isBinary) return client.send(data, { binary: true });
    client.send(JSON.stringify({ type: "later-notice", later: true }));
    client.send(JSON.stringify(grow(JSON.parse(data.toString("utf8")) as Json)));
  });
  for (const [one, other] of [
    [inner, client],
    [client, inner],
  ] as const) {
    one.on("close", () => other.close());
    one.on("error", () => other.terminate());
  }
}

function passThrough(behind: string, incoming: IncomingMessage, socket: Duplex, head: Buffer, open: Set<Duplex>): void {
  const { hostname, port } = new URL(behind);
  const inner: Socket = connect(Number(port), hostname);
  open.add(inner);
  const lines = [`${incoming.method} ${incoming.url} HTTP/1.1`];
  for (let at = 0; at < incoming.rawHeaders.length; at += 2)
    lines.push(`${incoming.rawHeaders[at]}: ${incoming.rawHeaders[at + 1]}`);
  inner.write(`${lines.join("\r\n")}\r\n\r\n`);
  inner.write(head);
  for (const one of [socket, inner]) one.on("error", () => one.destroy());
  socket.pipe(inner).pipe(socket);
}
