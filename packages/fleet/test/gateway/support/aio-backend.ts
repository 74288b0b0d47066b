/** A backend in memory whose sandboxes have an AIO API: a server of the test on this machine. */

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { AIO_TUNNEL_PORT } from "@sandlot/contract";
import type { Backend, Target } from "../../../src/backend/backend.ts";
import { richBackend } from "./rich-backend.ts";

export interface InnerAio {
  /** For `enrich` of a stage. */
  readonly enrich: (backend: Backend) => Backend;
  close(): Promise<void>;
}

/** It answers with the path; `/slow` never ends. */
export async function openInnerAio(): Promise<InnerAio> {
  const inner: Server = createServer((request, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.write(JSON.stringify({ path: request.url }));
    if (request.url !== "/slow") response.end();
  });
  await new Promise<void>((resolve) => inner.listen(0, "127.0.0.1", resolve));
  const { port } = inner.address() as AddressInfo;
  return {
    enrich: (backend) => servingAio(richBackend(backend), port),
    async close() {
      inner.closeAllConnections();
      await new Promise((resolve) => inner.close(resolve));
    },
  };
}

function servingAio(backend: Backend, port: number): Backend {
  return new Proxy(backend, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (name !== "attach") return typeof value === "function" ? value.bind(target) : value;
      return async (to: Target, signal: AbortSignal) => {
        const attachment = await target.attach(to, signal);
        const { connect } = attachment;
        if (connect === undefined) throw new Error("the backend has no previews");
        return {
          ...attachment,
          connect: (asked: number, until: AbortSignal) => connect(asked === AIO_TUNNEL_PORT ? port : asked, until),
        };
      };
    },
  });
}
