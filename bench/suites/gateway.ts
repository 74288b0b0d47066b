/** The suite `gateway`: the cost of HTTP against the library, and against a bare server. */

import { execThroughHttp } from "./gateway/exec.ts";
import { health } from "./gateway/health.ts";
import { transfer } from "./gateway/transfer.ts";
import type { Suite } from "./suite.ts";

export const suite: Suite = {
  about: [
    "`sandlot serve` as a process of its own on real sandboxes, asked by the client, against the library in this process",
    "on the same backend. The machine's cores are shared by client, gateway and sandbox. Needs Linux with bubblewrap.",
  ].join("\n"),
  async *run(options) {
    yield* health(options);
    yield* execThroughHttp(options);
    yield* transfer(options);
  },
};
