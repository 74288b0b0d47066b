/** The double in a separate thread, so that its work does not count as the fleet's. Has a socket and a port. */

import type { AddressInfo } from "node:net";
import { parentPort, workerData } from "node:worker_threads";
import { createDouble } from "./double.ts";

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
onSocket.listen(path, () =>
  onPort.listen(0, "127.0.0.1", () => parentPort?.postMessage({ port: (onPort.address() as AddressInfo).port })),
);
