/**
 * Options of a container whose image has its own server: the image chooses the program, and may choose the user. Pure.
 *
 * Invariants
 * - All restrictions of `container/options.ts` stay, except for the capabilities that the configuration names.
 * - Capabilities have no effect for an account that is not root, so with some the image starts as its own user.
 *   Otherwise it starts as the sandboxes' account, as all containers do.
 */

import { TEMPORARY_HOME } from "@sandlot/contract";
import type Docker from "dockerode";
import { INSIDE } from "../container/inside.ts";

/** Where servers of the AIO API listen. */
export const AIO_PORT = 8_080;
/** Variables of the server: the key that clients must send, and its working directory. */
const NAMES = { key: "SANDBOX_API_KEY", workspace: "WORKSPACE" } as const;

export interface AioShape {
  readonly apiKey: string;
  readonly workspace: string;
  /** Holds no secret: every client of the engine can read it. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Whether the image starts as its own user. */
export function startsAsItself({ capabilities }: { readonly capabilities: readonly string[] }): boolean {
  return capabilities.length > 0;
}

/** `base` holds the options of any container of the backend. */
export function aioOptions(base: Docker.ContainerCreateOptions, shape: AioShape): Docker.ContainerCreateOptions {
  const { Entrypoint: _entrypoint, Cmd: _command, WorkingDir: _directory, User, HostConfig = {}, ...rest } = base;
  const isItself = startsAsItself({ capabilities: (HostConfig.CapAdd ?? []) as readonly string[] });
  // Commands get their own home (`container/command-environment.ts`). An image that starts as itself has its own, too.
  const home = isItself ? {} : { HOME: TEMPORARY_HOME };
  const variables = { ...home, ...shape.environment, [NAMES.workspace]: shape.workspace, [NAMES.key]: shape.apiKey };
  const { [INSIDE.temporary]: _temporary, ...memory } = (HostConfig.Tmpfs ?? {}) as Record<string, string>;
  const published = Object.values((HostConfig.PortBindings ?? {}) as Record<string, unknown>)[0];
  const port = `${AIO_PORT}/tcp`;
  return {
    ...rest,
    ...(isItself ? {} : { User }),
    Env: Object.entries(variables).map(([name, value]) => `${name}=${value}`),
    ...(published === undefined ? {} : { ExposedPorts: { [port]: {} } }),
    HostConfig: {
      ...HostConfig,
      Tmpfs: memory,
      ...(published === undefined ? {} : { PortBindings: { [port]: published } }),
    },
  };
}
