/**
 * Where an engine may be: what was configured, then what Docker's own tools would use, then the usual sockets.
 *
 * Invariants
 * - A configured engine is used or fails; no other engine replaces it.
 * - This file sends no request: it lists places, in the order in which they are tried.
 */

import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

export interface EnginePlace {
  /** `unix:///path`, `tcp://host:port`, `ssh://user@host` or `npipe:////./pipe/name`. */
  readonly address: string;
  /** The source of the address, for a person. */
  readonly from: string;
  /** A directory with `ca.pem`, `cert.pem` and `key.pem`, where it is reached by TLS. */
  readonly certificates?: string;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** `configured` is `docker.host`. */
export function enginePlaces(
  configured: string | null,
  environment: Environment,
  home: string,
  uid: number,
): readonly EnginePlace[] {
  const named = (address: string, from: string) => [{ address, from, ...certificatesFor(address, environment, home) }];
  if (configured !== null) return named(configured, "docker.host");
  const { DOCKER_HOST, DOCKER_CONTEXT } = environment;
  if (DOCKER_HOST !== undefined && DOCKER_HOST !== "") return named(DOCKER_HOST, "DOCKER_HOST");
  const context = contextPlace(DOCKER_CONTEXT, environment, home);
  return context === null ? usualPlaces(environment, home, uid) : [context];
}

/** As Docker's own tools do: `DOCKER_CERT_PATH`, or their own directory when `DOCKER_TLS_VERIFY` asks for TLS. */
function certificatesFor(address: string, environment: Environment, home: string): Pick<EnginePlace, "certificates"> {
  const { DOCKER_CERT_PATH = "", DOCKER_TLS_VERIFY = "" } = environment;
  if (!/^(tcp|https):/.test(address) || (DOCKER_CERT_PATH === "" && DOCKER_TLS_VERIFY === "")) return {};
  return { certificates: DOCKER_CERT_PATH || (environment.DOCKER_CONFIG ?? join(home, ".docker")) };
}

function usualPlaces(environment: Environment, home: string, uid: number): readonly EnginePlace[] {
  const runtime = environment.XDG_RUNTIME_DIR ?? `/run/user/${uid}`;
  const sockets = [
    ["/var/run/docker.sock", "Docker"],
    [join(runtime, "docker.sock"), "rootless Docker"],
    [join(home, ".docker/run/docker.sock"), "Docker Desktop"],
    [join(home, ".docker/desktop/docker.sock"), "Docker Desktop"],
    [join(home, ".colima/default/docker.sock"), "Colima"],
    [join(home, ".orbstack/run/docker.sock"), "OrbStack"],
    [join(runtime, "podman/podman.sock"), "rootless Podman"],
    ["/run/podman/podman.sock", "Podman"],
  ] as const;
  return sockets.map(([path, from]) => ({ address: `unix://${path}`, from }));
}

/** The context that `docker context use` has chosen. `null` for the default one, which has no address of its own. */
function contextPlace(chosen: string | undefined, environment: Environment, home: string): EnginePlace | null {
  const directory = environment.DOCKER_CONFIG ?? join(home, ".docker");
  const name = chosen ?? stringAt(readJson(join(directory, "config.json")), "currentContext");
  if (name === undefined || name === "" || name === "default") return null;
  const key = createHash("sha256").update(name).digest("hex");
  const meta = readJson(join(directory, "contexts/meta", key, "meta.json"));
  const address = stringAt(meta, "Endpoints", "docker", "Host");
  // A bad address fails when it is tried.
  const certificates = join(directory, "contexts/tls", key, "docker");
  return {
    address: address ?? `context:${name}`,
    from: `context ${name}`,
    ...(existsSync(certificates) ? { certificates } : {}),
  };
}

function readJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch {
    return undefined;
  }
}

function stringAt(value: unknown, ...keys: readonly string[]): string | undefined {
  let at = value;
  for (const key of keys) at = typeof at === "object" && at !== null ? (at as Record<string, unknown>)[key] : undefined;
  return typeof at === "string" ? at : undefined;
}
