/** The suite `local`: the cost of a sandbox on this machine against the same work without one. */

import { blankAcquire } from "./local/blank-acquire.ts";
import { coldCreate } from "./local/cold-create.ts";
import { daemonReady } from "./local/daemon-ready.ts";
import { execTrue } from "./local/exec-true.ts";
import { idleMemory } from "./local/idle-memory.ts";
import { largeWrite } from "./local/large-write.ts";
import type { Suite } from "./suite.ts";

export const suite: Suite = {
  about: [
    "Real sandboxes (bubblewrap, seccomp, sandboxd on this Node) against the host's own spawn, bwrap, node:http and file",
    "writes, in one run. Commands are new processes each time. Needs Linux with bubblewrap.",
  ].join("\n"),
  async *run(options) {
    yield* execTrue(options);
    yield* blankAcquire(options);
    yield* coldCreate(options);
    yield* largeWrite(options);
    yield* daemonReady(options);
    await idleMemory();
  },
};
