/**
 * What the backend asks of an engine, whichever it is: each question with a deadline, each answer parsed.
 *
 *   docker-engine.ts   Docker's API, also Podman's
 *   ../apple/          Apple's `container` on macOS, which has no API: its commands
 *
 * The words are Docker's, because most engines speak them: options of a container, answers and events. An engine that has others
 * translates.
 *
 * Invariants
 * - No question waits for ever.
 * - What changes the engine is not abandoned half-way: an aborted create could still take effect after somebody looked.
 * - `null` means that the engine has answered that there is no such thing. Not answering is `engine_unavailable`; having answered no
 *   is an `EngineRefusal`.
 */

import type Docker from "dockerode";
import type { z } from "zod";
import type { imageSchema, inspectSchema, listSchema, networkSchema } from "./answers.ts";
import type { OwnLimits } from "./own-limits.ts";

export interface EngineFacts {
  /** Another engine at the same address has another. */
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
  /** Whether it carries a socket that a container makes to a path of this machine, where they share none. */
  readonly relaysSockets: boolean;
  /** Whether containers can be made to stand still. */
  readonly canPause: boolean;
  /** What must be named in every container, so that the engine does not ask the kernel for more than it gets. */
  readonly ceilings: OwnLimits | null;
}

export type ContainerInspection = z.infer<typeof inspectSchema>;
export type ListedContainer = z.infer<typeof listSchema>[number];
export type ImageInspection = z.infer<typeof imageSchema>;
export type NetworkInspection = z.infer<typeof networkSchema>;

/** A socket of a container that the engine carries to a path of this machine. */
export interface SocketRelay {
  readonly inside: string;
  readonly outside: string;
}

/** A container to be made. `relay` is for engines that relay sockets. */
export type ContainerRequest = Docker.ContainerCreateOptions & { readonly relay?: SocketRelay };

export interface Engine {
  /** As they were when somebody asked last. */
  readonly facts: EngineFacts;
  /** Asks which engine it is now: another may have taken its place, or it may have been set up differently. */
  identify(): Promise<string>;
  inspect(containerId: string): Promise<ContainerInspection | null>;
  /** Everything with these labels, running or not. */
  list(labels: readonly string[]): Promise<readonly ListedContainer[]>;
  create(options: ContainerRequest): Promise<string>;
  start(containerId: string): Promise<void>;
  /** Its processes stand still, and keep their memory. */
  pause(containerId: string): Promise<void>;
  unpause(containerId: string): Promise<void>;
  /** Ends and removes it, with what it left unnamed. What is gone, or is being removed, is fine. */
  remove(containerId: string): Promise<void>;
  /** The end of what its first process said. */
  logTail(containerId: string, lines: number): Promise<string>;
  /** What it says, from its start on and as it comes, until the signal fires or it ends. */
  output(containerId: string, signal: AbortSignal): Promise<NodeJS.ReadableStream>;
  network(name: string): Promise<NetworkInspection | null>;
  image(name: string): Promise<ImageInspection | null>;
  /** A stream of lines, one JSON document each, while the engine pulls. */
  pull(name: string, signal: AbortSignal): Promise<NodeJS.ReadableStream>;
  /** A stream of lines, one JSON document each. `sinceSeconds` may have a fraction. */
  events(labels: readonly string[], sinceSeconds: number, signal: AbortSignal): Promise<NodeJS.ReadableStream>;
  close(): void;
}
