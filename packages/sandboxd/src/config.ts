/**
 * The daemon's configuration: one JSON document from a descriptor or a file, so that no secret stands in an argument or
 * in the environment, where every process of the sandbox could read it.
 *
 * A file (`--config-file`) is for engines that mount secrets as files. Commands share the daemon's account there and can
 * read it: it holds only what belongs to their own sandbox.
 */

import { closeSync, readFileSync } from "node:fs";
import {
  type DaemonCanary,
  type DaemonConfig,
  type DaemonForward,
  type DaemonListen,
  type DaemonTrust,
  ENV_NAME_PATTERN,
  type PresharedKey,
  PSK_IDENTITY_MAX_BYTES,
  SOCKET_PATH_MAX_BYTES,
} from "@sandlot/contract";
import type { Secret } from "./wire/credentials.ts";
import { sha256 } from "./wire/sha256.ts";

/** The daemon cannot start with this configuration. The message is for its starter. */
export class ConfigProblem extends Error {
  override readonly name = "ConfigProblem";
}

/** The configuration in the daemon's memory: it can check a token, but does not hold it. */
export type HeldConfig = Omit<DaemonConfig, "token"> & Secret;

export interface Startup {
  readonly config: HeldConfig;
  /** The descriptor of the supervisor's state for the next run of the daemon. */
  readonly supervisorFd: number | null;
  /** `/proc/self/coredump_filter`, opened for a daemon that cannot do it itself. */
  readonly tagFd: number | null;
  /** The same of `/proc/self/oom_score_adj`. */
  readonly scoreFd: number | null;
  /** Another run of the daemon came before, in the same sandbox. */
  readonly restarted: boolean;
}

export function readStartup(args: readonly string[]): Startup {
  const file = option(args, "--config-file");
  const configFd = descriptor(args, "--config-fd") ?? 0;
  const supervisorFd = descriptor(args, "--supervisor-fd");
  let config: HeldConfig;
  let rebound: Secret | null = null;
  try {
    const text = readFileSync(file ?? configFd, "utf8");
    if (file === null && configFd > 2) closeSync(configFd);
    // A supervisor adds a line: the credentials of a rebind.
    const [line = "", left = ""] = supervisorFd === null ? [text] : text.split("\n");
    config = checkConfig(JSON.parse(line));
    if (left !== "") rebound = checkSecret(JSON.parse(left));
  } catch (error) {
    if (error instanceof ConfigProblem) throw error;
    const where = file === null ? `descriptor ${configFd}` : `the file ${file}`;
    throw new ConfigProblem(`${where} holds no configuration: ${(error as Error).message}`);
  }
  return {
    config: { ...config, ...rebound },
    supervisorFd,
    tagFd: descriptor(args, "--tag-fd"),
    scoreFd: descriptor(args, "--score-fd"),
    restarted: args.includes("--restarted"),
  };
}

function option(args: readonly string[], name: string): string | null {
  const at = args.indexOf(name);
  return at < 0 ? null : (args[at + 1] ?? "");
}

function descriptor(args: readonly string[], name: string): number | null {
  const text = option(args, name);
  if (text === null) return null;
  const fd = text === "" ? Number.NaN : Number(text);
  if (Number.isInteger(fd) && fd >= 0) return fd;
  throw new ConfigProblem(`${name} needs the number of a descriptor`);
}

function checkConfig(value: unknown): HeldConfig {
  const fields = object(value, "the configuration");
  const { sandboxId, ready, orphanTimeoutMs, environment, defaultCwd, killGraceMs, execMax, commandPrefix } = fields;
  const { outputHoldMs } = fields;
  return {
    sandboxId: filled(sandboxId, "sandboxId"),
    ...checkSecret(fields),
    listen: checkListen(fields.listen),
    ...(ready !== undefined && { ready: checkReady(ready) }),
    ...(fields.aioListen !== undefined && { aioListen: checkListen(fields.aioListen) }),
    ...(orphanTimeoutMs !== undefined && { orphanTimeoutMs: whole(orphanTimeoutMs, "orphanTimeoutMs") }),
    ...(environment !== undefined && { environment: checkEnvironment(environment) }),
    ...(defaultCwd !== undefined && { defaultCwd: filled(defaultCwd, "defaultCwd") }),
    ...(killGraceMs !== undefined && { killGraceMs: whole(killGraceMs, "killGraceMs") }),
    ...(outputHoldMs !== undefined && { outputHoldMs: whole(outputHoldMs, "outputHoldMs") }),
    ...(execMax !== undefined && { execMax: whole(execMax, "execMax") }),
    ...(commandPrefix !== undefined && { commandPrefix: texts(commandPrefix, "commandPrefix") }),
    ...(fields.forward !== undefined && { forward: checkForward(fields.forward) }),
    ...(fields.trust !== undefined && { trust: checkTrust(fields.trust) }),
    ...(fields.canary !== undefined && { canary: checkCanary(fields.canary) }),
    ownsPidNamespace: fields.ownsPidNamespace === true,
  };
}

function checkSecret(value: unknown): Secret {
  const { generation, token, tokenHash } = object(value, "the credentials");
  return {
    generation: whole(generation, "generation"),
    tokenHash: tokenHash === undefined ? sha256(filled(token, "token")) : filled(tokenHash, "tokenHash"),
  };
}

function checkListen(value: unknown): DaemonListen {
  const fields = object(value, "listen");
  if (fields.path !== undefined) return { path: checkSocketPath(filled(fields.path, "listen.path")) };
  if (fields.fd !== undefined) return { fd: whole(fields.fd, "listen.fd") };
  const { psk } = fields;
  return {
    host: filled(fields.host, "listen.host"),
    port: whole(fields.port, "listen.port"),
    ...(psk !== undefined && { psk: checkKey(psk, "listen.psk") }),
  };
}

function checkKey(value: unknown, name: string): PresharedKey {
  const { identity, key } = object(value, name);
  const text = filled(identity, `${name}.identity`);
  if (Buffer.byteLength(text) > PSK_IDENTITY_MAX_BYTES)
    throw new ConfigProblem(`${name}.identity has more than ${PSK_IDENTITY_MAX_BYTES} bytes`);
  if (typeof key !== "string" || !/^[0-9a-f]{64}$/.test(key))
    throw new ConfigProblem(`${name}.key is not 64 hexadecimal digits`);
  return { identity: text, key };
}

function checkTrust(value: unknown): DaemonTrust {
  const { directory, certificatePem } = object(value, "trust");
  return {
    directory: filled(directory, "trust.directory"),
    certificatePem: filled(certificatePem, "trust.certificatePem"),
  };
}

function checkCanary(value: unknown): DaemonCanary {
  const { host, port, timeoutMs } = object(value, "canary");
  return {
    host: filled(host, "canary.host"),
    port: whole(port, "canary.port"),
    ...(timeoutMs !== undefined && { timeoutMs: whole(timeoutMs, "canary.timeoutMs") }),
  };
}

function checkReady(value: unknown): { fd: number } | { path: string } {
  const fields = object(value, "ready");
  if (fields.path !== undefined) return { path: checkSocketPath(filled(fields.path, "ready.path")) };
  return { fd: whole(fields.fd, "ready.fd") };
}

function checkForward(value: unknown): DaemonForward {
  const fields = object(value, "forward");
  const port = whole(fields.port, "forward.port");
  if (fields.to === undefined)
    return { port, socketPath: checkSocketPath(filled(fields.socketPath, "forward.socketPath")) };
  const to = object(fields.to, "forward.to");
  const where = { host: filled(to.host, "forward.to.host"), port: whole(to.port, "forward.to.port") };
  return { port, to: { ...where, psk: checkKey(to.psk, "forward.to.psk") } };
}

/** The kernel takes 107 bytes; Node 20 silently truncates longer ones and reaches another socket. */
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

function texts(value: unknown, name: string): readonly string[] {
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) return value;
  throw new ConfigProblem(`${name} is not a list of texts`);
}

function whole(value: unknown, name: string): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return value;
  throw new ConfigProblem(`${name} is not a whole number from 0`);
}
