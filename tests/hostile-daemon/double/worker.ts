/**
 * The double in a separate thread, so that its work does not count as the fleet's. Has a socket, a port, and a port with a
 * pre-shared key: a sandbox that was taken over has its own key.
 */

import type { AddressInfo, Server } from "node:net";
import { createServer } from "node:tls";
import { parentPort, workerData } from "node:worker_threads";
import { PSK_TLS } from "@sandlot/contract";
import { createDouble } from "./double.ts";
import { DOUBLE_KEY } from "./key.ts";

const { path } = workerData as { readonly path: string };
const taken = new Map<string, number>();
const onTaken = (token: string, bytes: number): void => {
  taken.set(token, Math.max(taken.get(token) ?? 0, bytes));
};
const [onSocket, onPort] = [createDouble({ onTaken }), createDouble({ onTaken })];
process.on("uncaughtException", (error) => {
  // A bug of the test: a failing double shows nothing about the fleet.
  parentPort?.postMessage({ problem: String(error.stack) });
});
parentPort?.on("message", () => parentPort?.postMessage({ taken: [...taken] }));
const onKeyedPort = createServer({
  ...PSK_TLS,
  pskIdentityHint: DOUBLE_KEY.identity,
  pskCallback: () => Buffer.from(DOUBLE_KEY.key, "hex"),
});
const behindKey = createDouble({ onTaken });
onKeyedPort.on("secureConnection", (socket) => behindKey.emit("connection", socket));
onKeyedPort.on("tlsClientError", () => {});

const listening = (server: Server): Promise<number> =>
  new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve((server.address() as AddressInfo).port)));
await new Promise<void>((resolve) => onSocket.listen(path, resolve));
parentPort?.postMessage({ port: await listening(onPort), keyedPort: await listening(onKeyedPort) });
