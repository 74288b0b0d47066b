/** Responses per second of `/healthz` against a bare fastify route, each in a separate process. */

import { connect, type Socket } from "node:net";
import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import { end, firstLine, serveGateway, startNode } from "../../stage/served-gateway.ts";
import type { SuiteOptions } from "../suite.ts";

/** At least half as many. */
const LIMIT = 2;
const CONNECTIONS = 8;
/** Requests in flight on one connection, so that the server is measured and not its client. */
const PIPELINED = 8;
/** Answers with the gateway's own body, so that both sides serialise and send the same. */
const bareServer = (body: string) => `
import fastify from "fastify";
const app = fastify();
app.get("/healthz", async () => (${body}));
await app.listen({ host: "127.0.0.1", port: 0 });
console.log("http://127.0.0.1:" + app.server.address().port);
`;

export async function* health({ quick }: SuiteOptions): AsyncGenerator<Result> {
  await using served = await serveGateway();
  const body = await (await fetch(`${served.url}/healthz`)).text();
  const bare = startNode(["--input-type=module", "-e", bareServer(body)], process.env);
  try {
    const [ours, theirs] = await Promise.all([
      asking(served.url, body),
      firstLine(bare).then((url) => asking(url, body)),
    ]);
    const subjects: Subject[] = [
      { name: "the gateway's /healthz", run: ours.ask },
      { name: "a bare fastify route", run: theirs.ask },
    ];
    const plan = { rounds: quick ? 10 : 30, batch: 2_000, timingsPerRound: 1, warmUp: 10_000 };
    const [gateway, fastify] = await interleave(subjects, plan);
    if (gateway === undefined || fastify === undefined) throw new Error("A side is missing.");
    const about = `${CONNECTIONS} connections kept open, ${PIPELINED} requests on their way on each; no key needed`;
    yield compare({ name: "health", limit: LIMIT, about }, gateway, fastify);
    ours.close();
    theirs.close();
  } finally {
    await end(bare);
  }
}

/** Connections that send the next request after each response. */
async function asking(url: string, body: string) {
  const { hostname, port, host } = new URL(url);
  const sockets = await Promise.all(
    Array.from({ length: CONNECTIONS }, async () => {
      const socket = connect(Number(port), hostname);
      await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
      return socket;
    }),
  );
  const request = Buffer.from(`GET /healthz HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  return {
    ask: async (count: number) => {
      await Promise.all(sockets.map((socket) => askOn(socket, request, body, Math.ceil(count / CONNECTIONS))));
    },
    close: () => sockets.forEach((socket) => void socket.destroy()),
  };
}

/** A response ends with its body. */
function askOn(socket: Socket, request: Buffer, body: string, count: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let sent = 0;
    let answered = 0;
    let rest = "";
    const more = () => {
      while (sent < count && sent - answered < PIPELINED) {
        socket.write(request);
        sent += 1;
      }
    };
    const onData = (piece: Buffer) => {
      const parts = (rest + piece.toString("latin1")).split(body);
      rest = parts.pop() ?? "";
      answered += parts.length;
      if (parts.some((head) => !head.startsWith("HTTP/1.1 200 "))) return done(new Error("it did not answer 200"));
      if (answered === count) return done(null);
      more();
    };
    const onClose = () => done(new Error("it closed the connection"));
    const done = (error: Error | null) => {
      socket.off("data", onData).off("close", onClose);
      if (error === null) resolve();
      else reject(error);
    };
    socket.on("data", onData).on("close", onClose);
    more();
  });
}
