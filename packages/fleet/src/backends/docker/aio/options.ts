/**
 * What is different about a container whose image has its own server: what it runs is the image's, and so may be whom it runs as.
 * Pure.
 *
 * Invariants
 * - Everything that `container/options.ts` takes away stays taken away, but for the capabilities that the configuration names.
 * - Capabilities mean nothing to an account that is not root, so an image that names some starts as its own user. Every other
 *   starts as the sandboxes' account, as all containers do.
 */

import type Docker from "dockerode";
import { INSIDE } from "../container/inside.ts";

/** Where servers of the AIO API listen. */
export const AIO_PORT = 8_080;
/** What the server is told: the key that it asks for, and where its work is. */
const NAMES = { key: "SANDBOX_API_KEY", workspace: "WORKSPACE" } as const;

export interface AioShape {
  readonly apiKey: string;
  readonly workspace: string;
  /** Nothing secret: whoever may ask the engine can read it. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Whether the image starts as its own user. */
export function startsAsItself({ capabilities }: { readonly capabilities: readonly string[] }): boolean {
  return capabilities.length > 0;
}

/** `base` is what any container of the backend is asked for with. */
export function aioOptions(base: Docker.ContainerCreateOptions, shape: AioShape): Docker.ContainerCreateOptions {
  const { Entrypoint: _entrypoint, Cmd: _command, WorkingDir: _directory, User, HostConfig = {}, ...rest } = base;
  const isItself = startsAsItself({ capabilities: (HostConfig.CapAdd ?? []) as readonly string[] });
  const variables = { ...shape.environment, [NAMES.workspace]: shape.workspace, [NAMES.key]: shape.apiKey };
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
