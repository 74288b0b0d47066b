/**
 * Starts, finds and ends the egress process of a sandbox.
 *
 * The maker of a sandbox calls `startEgress`, and so does an instance that attaches later. It joins a process with the
 * same settings, and replaces any other under the same paths. Two that start at once replace one another; the last
 * stays, and the other notices and ends.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { compilePolicy, type NetworkPolicy } from "../../../backend/network/policy.ts";
import { FROM_SOURCE, programFile } from "../../../package-files.ts";
import type { ProcessIdentity, World } from "../../../world/world.ts";
import type { EgressLimits } from "../limits.ts";
import type { OnRefused } from "../proxy/refusal-log.ts";
import { needsAuthority } from "../sandbox-side/sandbox-network.ts";
import { type Egress, EgressConnection, failedEgress, greet } from "./connection.ts";
import { authorityOf, prepareDirectory, readJson } from "./directory.ts";
import { type EgressSettings, places, settingsHash } from "./egress-settings.ts";

export interface StartEgressOptions {
  readonly sandboxId: string;
  readonly policy: NetworkPolicy;
  /** A directory for this sandbox's proxy alone, with a short path, outside every mount. Created when missing. */
  readonly directory: string;
  readonly world: World;
  readonly onRefused?: OnRefused | undefined;
  /** An unexpected failure in the proxy that ended nothing. */
  readonly onFault?: ((problem: string) => void) | undefined;
  /** For a root fleet: the account that parses what the sandbox sends. It is not the sandbox's own. */
  readonly account?: EgressSettings["account"];
  readonly limits?: Partial<EgressLimits> | undefined;
  readonly hosts?: EgressSettings["hosts"];
  readonly upstreamCa?: readonly string[] | undefined;
  /**
   * `namespace`: in the sandbox's network namespace, which is created here and which the sandbox is started in.
   * `socket`: on a unix socket in a mounted directory, with a forwarder inside; for sandboxes whose namespace cannot be
   * entered. `open` needs the first.
   */
  readonly way: EgressSettings["way"];
  /** With the way `namespace`, for a running sandbox: a process in its network namespace. */
  readonly namespace?: EgressSettings["namespace"];
  readonly orphanTimeoutMs?: number | undefined;
}

const START_TIMEOUT_MS = 20_000;
const ORPHAN_TIMEOUT_MS = 60_000;
/** The proxy streams and keeps little state. */
const NODE_FLAGS = ["--max-old-space-size=128", "--max-semi-space-size=1", "--no-warnings"];

/** Joins the running proxy of this sandbox, or starts one. */
export async function startEgress(options: StartEgressOptions): Promise<Egress> {
  compilePolicy(options.policy);
  prepareDirectory(options);
  const settings = settingsOf(options);
  const wanted = settingsHash(settings);
  const running = await greet(options);
  if (running === null) endSilent(options);
  if (running?.hello.settingsHash === wanted && running.hello.sandboxId === options.sandboxId) {
    return new EgressConnection(options, running);
  }
  if (running !== null) await new EgressConnection(options, running).stop();
  await startProcess(settings, options.world);
  const started = await greet(options);
  if (started === null) throw failedEgress("it ended as soon as it had started");
  return new EgressConnection(options, started);
}

/** Ends the proxy in this directory. None there is success. */
export async function stopEgress(options: Pick<StartEgressOptions, "directory" | "world">): Promise<void> {
  const running = await greet(options);
  if (running === null) endSilent(options);
  else await new EgressConnection(options, running).stop();
}

/** A process that runs and does not greet is stuck, and holds resources that its successor needs. */
function endSilent({ directory, world }: Pick<StartEgressOptions, "directory" | "world">): void {
  const identity = readJson<ProcessIdentity>(places(directory).identity);
  if (identity !== null && world.processLiveness(identity) === "alive") process.kill(identity.pid, "SIGKILL");
}

function settingsOf(options: StartEgressOptions): EgressSettings {
  const { sandboxId, directory, policy, limits, upstreamCa, hosts, account, way, namespace } = options;
  const authority = needsAuthority(policy) ? authorityOf(options) : null;
  return {
    ...{ sandboxId, directory, policy, limits, upstreamCa, hosts, account, way, namespace },
    ...(authority !== null && { authority }),
    orphanTimeoutMs: options.orphanTimeoutMs ?? ORPHAN_TIMEOUT_MS,
  };
}

/** Resolves when it listens. It leads its own session, so a signal to our group does not end it. */
async function startProcess(settings: EgressSettings, world: World): Promise<void> {
  const file = programFile("host/egress/process/egress-main");
  const flags = FROM_SOURCE ? ["--conditions=sandlot-source", ...NODE_FLAGS] : NODE_FLAGS;
  const child = spawn(process.execPath, [...flags, file], {
    detached: true,
    stdio: ["pipe", "pipe", "pipe"],
    cwd: "/",
    env: environment(),
  });
  const timer = world.timer(START_TIMEOUT_MS, () => child.kill("SIGKILL"));
  let problem = "";
  child.stderr.on("data", (chunk: Buffer) => {
    problem = (problem + chunk.toString()).slice(-2_000);
  });
  child.stdin.on("error", () => {});
  child.stdin.end(JSON.stringify(settings));
  try {
    const first = await Promise.race([
      once(child.stdout, "data").then(() => "ready" as const),
      once(child, "close").then(() => "ended" as const),
    ]);
    if (first === "ended") throw failedEgress(problem.trim() || "it ended without a word");
  } finally {
    timer.cancel();
    child.stdout.destroy();
    child.stderr.destroy();
    child.unref();
  }
}

/** Only what Node and the resolver need: no secrets of the fleet. */
function environment(): Record<string, string> {
  const names = [
    "PATH",
    "LANG",
    "TZ",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "LOCALDOMAIN",
    "RES_OPTIONS",
  ];
  return Object.fromEntries(
    names.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])),
  );
}
