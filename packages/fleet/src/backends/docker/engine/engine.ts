/**
 * The backend's requests to an engine of any kind: each request has a deadline, each response is parsed.
 *
 *   docker-engine.ts   Docker's API, also Podman's
 *   ../apple/          Apple's `container` on macOS, which has no API: its commands
 *
 * Options of a container, responses and events have Docker's form, because most engines speak it. Other engines
 * translate.
 *
 * Invariants
 * - Every request has a deadline.
 * - A request that changes the engine is not abandoned half-way: an aborted create could still take effect after a
 *   list.
 * - `null` means that the engine has no such object. No response is `engine_unavailable`; a refusal is an
 *   `EngineRefusal`.
 */

import type Docker from "dockerode";
import type { z } from "zod";
import type { imageSchema, inspectSchema, listSchema, networkSchema } from "./answers.ts";
import type { OwnLimits } from "./own-limits.ts";

export interface EngineFacts {
  /** Another engine at the same address has another id. */
  readonly id: string;
  readonly address: string;
  readonly apiVersion: string;
  readonly isPodman: boolean;
  /** Its root is an ordinary user of the host. */
  readonly isRootless: boolean;
  /** It maps every container's users to others of the host. */
  readonly remapsUsers: boolean;
  readonly hasSeccomp: boolean;
  readonly runtimes: readonly string[];
  readonly defaultRuntime: string;
  /** Whether its containers can see directories, and sockets, of this machine. */
  readonly isOnThisHost: boolean;
  /** Whether it relays a container's socket to a path of this machine, where they share none. */
  readonly relaysSockets: boolean;
  /** Whether containers can be paused. */
  readonly canPause: boolean;
  /** Limits that every container must name, so that the engine does not request more from the kernel than it gets. */
  readonly ceilings: OwnLimits | null;
}

export type ContainerInspection = z.infer<typeof inspectSchema>;
export type ListedContainer = z.infer<typeof listSchema>[number];
export type ImageInspection = z.infer<typeof imageSchema>;
export type NetworkInspection = z.infer<typeof networkSchema>;

/** A socket of a container that the engine relays to a path of this machine. */
export interface SocketRelay {
  readonly inside: string;
  readonly outside: string;
}

/** A container to be made. `relay` is for engines that relay sockets. */
export type ContainerRequest = Docker.ContainerCreateOptions & { readonly relay?: SocketRelay };

export interface Engine {
  /** As of the last `identify`. */
  readonly facts: EngineFacts;
  /**
   * Asks for the engine's present identity: another may have taken its place, or its configuration may have changed.
   */
  identify(): Promise<string>;
  inspect(containerId: string): Promise<ContainerInspection | null>;
  /** Everything with these labels, running or not. */
  list(labels: readonly string[]): Promise<readonly ListedContainer[]>;
  create(options: ContainerRequest): Promise<string>;
  start(containerId: string): Promise<void>;
  /** Stops its processes, which keep their memory. */
  pause(containerId: string): Promise<void>;
  unpause(containerId: string): Promise<void>;
  /** Ends and removes it, with its anonymous volumes. A container that is gone, or is being removed, is fine. */
  remove(containerId: string): Promise<void>;
  /** The last lines of its first process's output. */
  logTail(containerId: string, lines: number): Promise<string>;
  /** Its output from the start on, as it arrives, until the signal fires or the output ends. */
  output(containerId: string, signal: AbortSignal): Promise<NodeJS.ReadableStream>;
  network(name: string): Promise<NetworkInspection | null>;
  image(name: string): Promise<ImageInspection | null>;
  /** A stream of lines, one JSON document each, while the engine pulls. */
  pull(name: string, signal: AbortSignal): Promise<NodeJS.ReadableStream>;
  /** A stream of lines, one JSON document each. `sinceSeconds` may have a fraction. */
  events(labels: readonly string[], sinceSeconds: number, signal: AbortSignal): Promise<NodeJS.ReadableStream>;
  close(): void;
}
