/**
 * What the daemon is started with: one JSON document from a descriptor, so that nothing secret stands in an argument or
 * in the environment, where every process of the sandbox could read it.
 */

import { closeSync, readFileSync } from "node:fs";
import { type DaemonConfig, type DaemonListen, ENV_NAME_PATTERN, SOCKET_PATH_MAX_BYTES } from "@sandlot/contract";

/** The daemon cannot start with this configuration. The message is for whoever starts it. */
export class ConfigProblem extends Error {
  override readonly name = "ConfigProblem";
}

export function readConfig(args: readonly string[]): DaemonConfig {
  const at = args.indexOf("--config-fd");
  const fd = at < 0 ? 0 : Number(args[at + 1]);
  if (!Number.isInteger(fd) || fd < 0) throw new ConfigProblem("--config-fd needs the number of a descriptor");
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(fd, "utf8"));
    if (fd > 2) closeSync(fd);
  } catch (error) {
    throw new ConfigProblem(`descriptor ${fd} holds no configuration: ${(error as Error).message}`);
  }
  return checkConfig(value);
}

function checkConfig(value: unknown): DaemonConfig {
  const fields = object(value, "the configuration");
  const { sandboxId, generation, token, ready, orphanTimeoutMs, environment, defaultCwd, killGraceMs } = fields;
  return {
    sandboxId: filled(sandboxId, "sandboxId"),
    generation: whole(generation, "generation"),
    token: filled(token, "token"),
    listen: checkListen(fields.listen),
    ...(ready !== undefined && { ready: checkReady(ready) }),
    ...(orphanTimeoutMs !== undefined && { orphanTimeoutMs: whole(orphanTimeoutMs, "orphanTimeoutMs") }),
    ...(environment !== undefined && { environment: checkEnvironment(environment) }),
    ...(defaultCwd !== undefined && { defaultCwd: filled(defaultCwd, "defaultCwd") }),
    ...(killGraceMs !== undefined && { killGraceMs: whole(killGraceMs, "killGraceMs") }),
    ownsPidNamespace: fields.ownsPidNamespace === true,
  };
}

function checkListen(value: unknown): DaemonListen {
  const fields = object(value, "listen");
  if (fields.path !== undefined) return { path: checkSocketPath(filled(fields.path, "listen.path")) };
  if (fields.fd !== undefined) return { fd: whole(fields.fd, "listen.fd") };
  return { host: filled(fields.host, "listen.host"), port: whole(fields.port, "listen.port") };
}

function checkReady(value: unknown): { fd: number } | { path: string } {
  const fields = object(value, "ready");
  if (fields.path !== undefined) return { path: checkSocketPath(filled(fields.path, "ready.path")) };
  return { fd: whole(fields.fd, "ready.fd") };
}

/** The kernel takes 107 bytes; Node 20 cuts longer ones silently and reaches another socket. */
function checkSocketPath(path: string): string {
  const size = Buffer.byteLength(path);
  if (size <= SOCKET_PATH_MAX_BYTES) return path;
  throw new ConfigProblem(
    `the socket path ${path} has ${size} bytes; at most ${SOCKET_PATH_MAX_BYTES} work everywhere`,
  );
}

function checkEnvironment(value: unknown): Readonly<Record<string, string>> {
  const fields = object(value, "environment");
  for (const [name, content] of Object.entries(fields)) {
    if (!ENV_NAME_PATTERN.test(name) || typeof content !== "string")
      throw new ConfigProblem(`environment: ${JSON.stringify(name)} is not a variable with a text`);
  }
  return fields as Readonly<Record<string, string>>;
}

function object(value: unknown, name: string): Readonly<Record<string, unknown>> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new ConfigProblem(`${name} is not an object`);
}

function filled(value: unknown, name: string): string {
  if (typeof value === "string" && value !== "") return value;
  throw new ConfigProblem(`${name} is not a text`);
}

function whole(value: unknown, name: string): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return value;
  throw new ConfigProblem(`${name} is not a whole number from 0`);
}
