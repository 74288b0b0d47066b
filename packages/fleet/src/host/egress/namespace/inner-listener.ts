/**
 * A socket on the sandbox's loopback that a process of the host listens on.
 *
 * A socket belongs to the namespace in which it was created, regardless of its later owner. So a short-lived child
 * enters the sandbox's namespace, listens there, hands the socket over and ends. Nothing of this runs inside the
 * sandbox: nothing there can kill it, and nothing has to be mounted.
 */

import { spawn } from "node:child_process";
import type { Server } from "node:net";
import { programFile } from "../../../package-files.ts";
import type { World } from "../../../world/world.ts";
import { enterNamespace } from "./commands.ts";
import { failedNamespace } from "./holder.ts";

const TIMEOUT_MS = 10_000;

export async function listenInside(world: World, namespacePid: number, port: number): Promise<Server> {
  const file = programFile("host/egress/namespace/listen-inside");
  const [program = "", ...args] = [
    ...enterNamespace(namespacePid),
    process.execPath,
    "--no-warnings",
    file,
    String(port),
  ];
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe", "ipc"], cwd: "/" });
  const timer = world.timer(TIMEOUT_MS, () => child.kill("SIGKILL"));
  let problem = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    problem = (problem + chunk.toString()).slice(-1_000);
  });
  try {
    return await new Promise<Server>((resolve, reject) => {
      child.once("message", (_message, handle) => resolve(handle as Server));
      child.once("error", (error) => reject(failedNamespace(error.message)));
      child.once("close", () =>
        reject(failedNamespace(`port ${port} cannot be listened on inside: ${problem.trim()}`)),
      );
    });
  } finally {
    timer.cancel();
  }
}
