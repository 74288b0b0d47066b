/**
 * How this process reaches the API server: its address, and credentials for each request.
 *
 * `@kubernetes/client-node` reads kubeconfig files and renews credentials (tokens of a service account, commands, OIDC).
 * Nothing else of it is used: its informer stops at errors, and its port-forward ignores back-pressure.
 */

import type { Agent } from "node:http";
import { type RequestOptions, Agent as SecureAgent } from "node:https";
import type { KubeConfig } from "@kubernetes/client-node";
import { SandlotError } from "@sandlot/contract";
import { importPeer } from "../../../optional-peer.ts";

export interface AccessOptions {
  /** A kubeconfig file. `null`: the service account of this pod, else $KUBECONFIG, else ~/.kube/config. */
  readonly kubeconfig: string | null;
  /** `null`: the current context of the file. */
  readonly context: string | null;
  /** `null`: that of the service account or of the context. */
  readonly namespace: string | null;
}

/** The part of a request that depends on the credentials. */
export type RequestAccess = Pick<
  RequestOptions,
  "agent" | "auth" | "ca" | "cert" | "headers" | "key" | "passphrase" | "pfx" | "rejectUnauthorized" | "servername"
>;

export interface Access {
  readonly server: URL;
  readonly namespace: string;
  /** This process runs in a pod of the cluster. */
  readonly isInside: boolean;
  /** Credentials are renewed when they have to be. */
  forRequest(): Promise<RequestAccess>;
  close(): void;
}

const SERVICE_ACCOUNT_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/** Requests at once: writes, lists, one watch. */
const CONNECTIONS_MAX = 64;
const IDLE_CONNECTIONS_MAX = 16;

export async function openAccess(options: AccessOptions): Promise<Access> {
  const library = await importPeer(
    "@kubernetes/client-node",
    "The kubernetes backend",
    () => import("@kubernetes/client-node"),
  );
  const config = new library.KubeConfig();
  const isInside = load(config, options);
  const cluster = config.getCurrentCluster();
  if (cluster === null) throw unusable("it names no cluster", options);
  const inContext = config.getContextObject(config.getCurrentContext())?.namespace;
  const namespace = options.namespace ?? (isInside ? await ownNamespace() : inContext) ?? "default";
  const agent = new SecureAgent({ keepAlive: true, maxSockets: CONNECTIONS_MAX, maxFreeSockets: IDLE_CONNECTIONS_MAX });
  return {
    server: new URL(cluster.server),
    namespace,
    isInside,
    async forRequest() {
      const request: RequestOptions = { headers: {} };
      await config.applyToHTTPSOptions(request);
      // The library's agent knows the way through a proxy, but keeps no connection.
      return { ...picked(request), agent: cluster.proxyUrl === undefined ? agent : (request.agent as Agent) };
    },
    close: () => agent.destroy(),
  };
}

/** Whether the credentials are those of a pod. */
function load(config: KubeConfig, options: AccessOptions): boolean {
  const isInside = options.kubeconfig === null && process.env.KUBERNETES_SERVICE_HOST !== undefined;
  try {
    if (isInside) config.loadFromCluster();
    else if (options.kubeconfig !== null) config.loadFromFile(options.kubeconfig);
    else config.loadFromDefault();
    if (options.context !== null) config.setCurrentContext(options.context);
  } catch (error) {
    throw unusable(error instanceof Error ? error.message : String(error), options);
  }
  return isInside;
}

async function ownNamespace(): Promise<string | undefined> {
  const { readFile } = await import("node:fs/promises");
  const text = await readFile(SERVICE_ACCOUNT_NAMESPACE, "utf8").catch(() => "");
  return text.trim() === "" ? undefined : text.trim();
}

function picked({ auth, ca, cert, headers, key, passphrase, pfx, rejectUnauthorized, servername }: RequestOptions) {
  const given = { auth, ca, cert, headers, key, passphrase, pfx, rejectUnauthorized, servername };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as RequestAccess;
}

function unusable(problem: string, { kubeconfig }: AccessOptions): SandlotError {
  const tried = [kubeconfig ?? "the service account, $KUBECONFIG and ~/.kube/config"];
  return new SandlotError("engine_unavailable", { engine: "kubernetes", problem, tried, retryAfterMs: 5_000 });
}
