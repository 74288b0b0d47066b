/**
 * The child of `inner-listener.ts`: listens on this namespace's loopback, hands the socket to its parent, ends.
 */

import { createServer } from "node:net";

const server = createServer();
server.listen({ host: "127.0.0.1", port: Number(process.argv[2]), exclusive: true }, () => {
  process.send?.("listening", server, {}, () => process.exit(0));
});
