/**
 * Loaded into a gateway before anything else (`node --import`): counts its requests to the API server where they are
 * sent, and tells what the process has cost, on a socket. Plain JavaScript: the gateway measured is the bundle that
 * users run, which translates no TypeScript.
 */

import { subscribe } from "node:diagnostics_channel";
import { createServer } from "node:http";

const { SCALE_SOCKET, SCALE_API_HOST } = process.env;
const requests = new Map();
subscribe("http.client.request.start", ({ request }) => {
  if (request.getHeader("host") !== SCALE_API_HOST) return;
  const kind = /watch=1/.test(request.path) ? "WATCH" : request.method;
  const [, resource = "other"] = /\/namespaces\/[^/]+\/([a-z]+)/.exec(request.path) ?? [];
  const name = `${kind} ${resource}`;
  requests.set(name, (requests.get(name) ?? 0) + 1);
});

createServer((_request, response) => {
  const { user, system } = process.cpuUsage();
  const { rss, heapUsed } = process.memoryUsage();
  const cost = { residentBytes: rss, heapBytes: heapUsed, processorMs: (user + system) / 1_000 };
  response.end(JSON.stringify({ ...cost, requests: Object.fromEntries(requests) }));
})
  .listen(SCALE_SOCKET)
  .unref();
