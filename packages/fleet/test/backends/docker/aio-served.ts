/** A container of the AIO image, started as DeerFlow starts one, with requests over its published port. */

import { execFileSync, spawnSync } from "node:child_process";

export interface ServedContainer extends AsyncDisposable {
  readonly id: string;
  /** The response to a request, as JSON, and its status. */
  ask(path: string, body?: unknown, headers?: Record<string, string>): Promise<{ status: number; body: AioAnswer }>;
  docker(...args: readonly string[]): string;
}

export interface AioAnswer {
  readonly success?: boolean;
  readonly data?: Record<string, unknown> | null;
}

const READY_MS = 30_000;
const LOOK_MS = 100;

/** Resolves when it responds. `flags` stand before the image's name. */
export async function startServed(host: string, image: string, flags: readonly string[]): Promise<ServedContainer> {
  const docker = (...args: readonly string[]) =>
    execFileSync("docker", ["--host", host, ...args], { encoding: "utf8" }).trim();
  // As DeerFlow's local backend does.
  const id = docker(
    "run",
    "--rm",
    "-d",
    "-p",
    "127.0.0.1:0:8080",
    "--security-opt",
    "seccomp=unconfined",
    ...flags,
    image,
  );
  const address = docker("port", id, "8080/tcp").split("\n")[0];
  const ask: ServedContainer["ask"] = async (path, body, headers = {}) => {
    const answer = await fetch(`http://${address}${path}`, {
      headers: { ...headers, ...(body !== undefined && { "content-type": "application/json" }) },
      ...(body !== undefined && { method: "POST", body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: (await answer.json().catch(() => ({}))) as AioAnswer };
  };
  // A stopped one is gone already.
  const remove = () => spawnSync("docker", ["--host", host, "rm", "--force", id]);
  const until = Date.now() + READY_MS;
  for (;;) {
    const found = await ask("/v1/sandbox").catch(() => null);
    if (found !== null) return { id, ask, docker, [Symbol.asyncDispose]: async () => void remove() };
    if (Date.now() > until) {
      const said = docker("logs", id);
      remove();
      throw new Error(`it does not answer: ${said}`);
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}
