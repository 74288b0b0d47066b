/** Commands inside a sandbox made of bubblewrap and the arguments of `sandboxNetwork` alone. */

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { NetworkPolicy } from "../../../../src/backend/network/policy.ts";
import { sandboxNetwork } from "../../../../src/host/egress/sandbox-side/sandbox-network.ts";

export interface InsideResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A directory for a proxy's process, with a short enough path. */
export function proxyDirectory(): { readonly path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), "slp-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

const CHECKOUT = fileURLToPath(new URL("../../../../../../", import.meta.url));

/** For a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** With the `enter` value of a `namespace` proxy, the sandbox keeps the network that it finds there. */
export function runInside(
  policy: NetworkPolicy,
  directory: string,
  script: string,
  enter: readonly string[] | null = null,
): Promise<InsideResult> {
  const network = sandboxNetwork(policy, join(directory, "inside"), enter === null ? "socket" : "namespace");
  const args = [
    "--unshare-all",
    ...(enter === null ? [] : ["--share-net"]),
    "--unshare-user",
    "--uid",
    "1000",
    "--gid",
    "1000",
  ];
  args.push("--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc");
  args.push("--tmpfs", "/tmp", "--tmpfs", "/run", "--chdir", "/tmp", "--clearenv");
  // The checkout has the Node that runs inside, and may itself lie in a directory that was just covered.
  args.push("--ro-bind", CHECKOUT, CHECKOUT);
  const variables = { PATH: process.env.PATH ?? "", HOME: "/tmp", ...network.environment };
  for (const [name, value] of Object.entries(variables)) args.push("--setenv", name, value);
  for (const { hostPath, sandboxPath } of network.mounts) args.push("--ro-bind", hostPath, sandboxPath);
  const start =
    network.forwarder === null
      ? ""
      : `${quoted(process.execPath)} ${network.forwarder.join(" ")} >/tmp/listening & until test -s /tmp/listening; do kill -0 $! || exit 99; sleep 0.02; done\n`;
  return new Promise((resolve, reject) => {
    const [program = "", ...rest] = [...(enter ?? []), "bwrap", ...args, "sh", "-c", `${start}${script}`];
    const child = spawn(program, rest, { stdio: ["ignore", "pipe", "pipe"] });
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (chunk: Buffer) => {
      stdout += chunk.toString();
    });
    child.stderr.on("data", (chunk: Buffer) => {
      stderr += chunk.toString();
    });
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, stdout, stderr }));
  });
}
