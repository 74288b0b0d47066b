/**
 * The child of `namespace-connector.ts`: runs in a container's network namespace, connects there on request, and passes
 * the connections to its parent. It ends with its parent.
 */

import { connect } from "node:net";

const [port, uid, gid] = process.argv.slice(2).map(Number);
// Drops the rights that entering the namespace needed.
if (process.getuid?.() === 0) {
  process.setgroups?.([]);
  process.setgid?.(gid ?? 65_534);
  process.setuid?.(uid ?? 65_534);
}

process.on("disconnect", () => process.exit(0));
process.on("message", (id: number) => {
  const socket = connect({ host: "127.0.0.1", port: port ?? 0, noDelay: true });
  const onError = (error: NodeJS.ErrnoException) => process.send?.({ id, problem: error.code ?? error.message });
  socket.once("error", onError);
  socket.once("connect", () => {
    socket.off("error", onError);
    process.send?.({ id, problem: null }, socket, {}, (error) => error !== null && socket.destroy());
  });
});
process.send?.({ id: 0, problem: null });
