/** The remote backend's settings: the configured part, checked. */

import { readFile } from "node:fs/promises";
import { SandlotError } from "@sandlot/contract";
import type { FleetFacts } from "../../backend/entry.ts";
import { isMissing } from "../../world/disk-trouble.ts";
import { KEY_VARIABLE, type RemoteConfig } from "./config.ts";

export interface RemoteSettings extends Pick<FleetFacts, "home" | "fleetId" | "skillsPath"> {
  readonly remote: RemoteConfig;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** The provisioner's address. Throws `config_invalid`. */
export function provisionerUrl({ url, plainHttp }: RemoteConfig): URL {
  if (url === undefined) throw invalid("url", "is missing; name the provisioner, such as https://sandlot.example:8750");
  const parsed = new URL(url);
  const { protocol, hostname, username, password, search, hash } = parsed;
  if (username !== "" || password !== "" || search !== "" || hash !== "")
    throw invalid("url", "has a user, a query or a fragment; give only scheme, host, port and path");
  if (protocol === "http:" && !isLoopback(hostname) && !plainHttp)
    throw invalid(
      "url",
      `${url} sends the key beyond loopback in the clear; give an https URL, or allow it with remote.plainHttp`,
    );
  return parsed;
}

/** The key; `null` where there is none. */
export async function readKey({ keyFile }: RemoteConfig, environment: Environment): Promise<string | null> {
  if (keyFile === undefined) return environment[KEY_VARIABLE] || null;
  try {
    return (await readFile(keyFile, "utf8")).trim();
  } catch (error) {
    const problem = isMissing(error) ? `${keyFile} does not exist` : `${keyFile} cannot be read (${String(error)})`;
    throw invalid("keyFile", problem);
  }
}

function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(hostname);
}

function invalid(key: string, problem: string): SandlotError {
  return new SandlotError("config_invalid", { path: `remote.${key}`, problem });
}
