/**
 * What `sandlot serve` tells its gateway's dashboard about itself: its limits, its configuration with the origin of every
 * value, and what doctor finds.
 *
 * Invariants
 * - No secret leaves: values of variables and of secrets are left out, passwords of URLs are replaced. The dashboard is
 *   for operators, whose screens others see.
 * - Doctor runs once at a time: those who ask meanwhile get the same findings.
 */

import type { GatewaySettings } from "../config/gateway-settings.ts";
import { loadConfig } from "../config/load-config.ts";
import type { Settings } from "../config/settings.ts";
import type { Environment } from "../config/variables.ts";
import type { GatewayAbout } from "../gateway/index.ts";
import { withoutValues } from "./config-commands.ts";
import { keysFromVariables } from "./load-settings.ts";

const SECRET_NAME = /password|secret|token|credential|api_?key/i;
/** Levels of a configuration. A deeper value is shown whole. */
const DEPTH_MAX = 8;

type Value = ReturnType<GatewayAbout["configuration"]>["values"][number];

export interface AboutParts {
  readonly named: string | undefined;
  readonly environment: Environment;
  readonly settings: Settings;
  readonly gateway: GatewaySettings;
  /** Keys that a flag has set, with the flag. */
  readonly flags: ReadonlyMap<string, string>;
}

export async function gatewayAbout(parts: AboutParts): Promise<GatewayAbout> {
  const { settings, environment } = parts;
  const { max, mode } = settings.limits;
  const loaded = await loadConfig(parts.named, environment);
  const values = valuesOf(parts, { ...loaded.config, gateway: loaded.gateway });
  let looking: ReturnType<GatewayAbout["doctor"]> | null = null;
  const look = async () => {
    const { findingsOf } = await import("./doctor/doctor-command.ts");
    const findings = await findingsOf(settings, environment);
    return findings.map(({ name, status, detail, fix }) => ({
      name,
      status,
      detail,
      ...(fix !== undefined && { fix }),
    }));
  };
  return {
    limit: { max, mode },
    configuration: () => ({ file: loaded.file, values }),
    doctor() {
      looking ??= look().finally(() => {
        looking = null;
      });
      return looking;
    },
  };
}

function valuesOf({ settings, gateway, environment, flags }: AboutParts, inFile: unknown): Value[] {
  const variables = keysFromVariables(environment);
  const originOf = (path: readonly string[]) => {
    const key = path.join(".");
    return flags.get(key) ?? variables.get(key) ?? (isIn(inFile, path) ? "file" : "default");
  };
  const all = { ...(withoutValues(settings) as object), gateway };
  return leavesOf(all, []).map(({ path, value }) => ({
    path: path.join("."),
    value: shown(path, value),
    origin: originOf(path),
  }));
}

interface Leaf {
  readonly path: readonly string[];
  readonly value: unknown;
}

function leavesOf(value: unknown, path: readonly string[]): Leaf[] {
  const isSection = typeof value === "object" && value !== null && !Array.isArray(value) && path.length < DEPTH_MAX;
  if (!isSection) return value === undefined ? [] : [{ path, value }];
  return Object.entries(value).flatMap(([key, inner]) => leavesOf(inner, [...path, key]));
}

function isIn(value: unknown, [first, ...rest]: readonly string[]): boolean {
  if (first === undefined) return value !== undefined;
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, first)) return false;
  return isIn((value as Readonly<Record<string, unknown>>)[first], rest);
}

function shown(path: readonly string[], value: unknown): string {
  if (path.some((key) => SECRET_NAME.test(key)) && typeof value === "string") return '"(set)"';
  const replace = (key: string, inner: unknown) => {
    if (typeof inner !== "string") return inner;
    return key !== "" && SECRET_NAME.test(key) ? "(set)" : withoutPassword(inner);
  };
  return JSON.stringify(value, replace) ?? "null";
}

/** Also of several addresses in one text. */
function withoutPassword(text: string): string {
  return text.replaceAll(/(\b[a-z][a-z0-9+.-]*:\/\/[^\s/@:]*):[^\s/@]*@/gi, "$1:***@");
}
