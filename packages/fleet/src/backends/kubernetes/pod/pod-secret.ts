/**
 * The Secret of a pod: the daemon's configuration, which the pod mounts, and the markers of its threads, which it never
 * sees.
 *
 *   daemon.json            mounted: configuration with the hash of the token, and the pod's own keys
 *   made                   the credentials that the sandbox was made with
 *   marker.<generation>    a marker
 *   bound.<generation>     this generation's empty workspace was made in the pod (`workspaces: none`)
 *
 * Invariants
 * - It belongs to the pod's uid: it goes with the pod object, also when it was posted too late.
 * - An entry is never overwritten: a patch names the version it was made for.
 */

import { type FleetId, type Generation, type SandboxId, SandlotError, type Token } from "@sandlot/contract";
import { z } from "zod";
import type { Credentials } from "../../../backend/backend.ts";
import type { Marker } from "../../../backend/labels.ts";
import type { Markers } from "../../../backend/markers.ts";
import { type Api, type ApiObject, isInDoubt, isRefusal, type PatchStep } from "../api/api.ts";
import { LABEL, podName } from "./names.ts";

export const CONFIG_ENTRY = "daemon.json";
const MADE = "made";
const MARKER = "marker.";
const BOUND = "bound.";
/** A patch that loses against others again and again. */
const PATCH_ATTEMPTS = 10;

const secretSchema = z.looseObject({
  metadata: z.looseObject({
    ownerReferences: z.array(z.looseObject({ uid: z.string() })).default([]),
  }),
  data: z.record(z.string(), z.string()).default({}),
});

const markerSchema = z.looseObject({
  sandboxId: z.string(),
  user: z.string(),
  thread: z.string(),
  generation: z.int(),
  token: z.string(),
  blueprint: z.string(),
  blueprintHash: z.string(),
});
const credentialsSchema = z.looseObject({ generation: z.int(), token: z.string() });

export interface NewSecret {
  readonly sandboxId: SandboxId;
  readonly podUid: string;
  readonly labels: Readonly<Record<string, string>>;
  /** As the daemon reads it. */
  readonly config: string;
  readonly made: Credentials;
  readonly marker: Marker | null;
}

export class PodSecrets implements Markers {
  readonly #api: Api;
  readonly #fleetId: FleetId;
  readonly #signal: AbortSignal;

  /** `signal` ends what markers ask when the backend closes. */
  constructor(api: Api, fleetId: FleetId, signal: AbortSignal) {
    this.#api = api;
    this.#fleetId = fleetId;
    this.#signal = signal;
  }

  /** Idempotent: an equal one of the same pod is the one of an earlier call whose answer was lost. */
  async make(
    { sandboxId, podUid, labels, config, made, marker }: NewSecret,
    signal: AbortSignal,
    attempt = 1,
  ): Promise<void> {
    const name = podName(sandboxId);
    const { generation, token } = made;
    const data = {
      [CONFIG_ENTRY]: encoded(config),
      [MADE]: encoded(JSON.stringify({ generation, token })),
      ...(marker !== null && { [`${MARKER}${marker.generation}`]: encoded(JSON.stringify(marker)) }),
    };
    const owner = { apiVersion: "v1", kind: "Pod", name, uid: podUid };
    const body = {
      apiVersion: "v1",
      kind: "Secret",
      type: "Opaque",
      metadata: { name, labels: { [LABEL.fleet]: labels[LABEL.fleet] }, ownerReferences: [owner] },
      data,
    };
    try {
      await this.#api.create("secrets", body, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (isRefusal(error, 422) || !isInDoubt(error) || attempt >= PATCH_ATTEMPTS) throw error;
      const found = await this.#api.get("secrets", name, signal);
      if (found === null) return this.make({ sandboxId, podUid, labels, config, made, marker }, signal, attempt + 1);
      const { metadata, data: present } = secretSchema.parse(found);
      const isOurs = metadata.ownerReferences.some(({ uid }) => uid === podUid);
      if (!isOurs || present[CONFIG_ENTRY] !== data[CONFIG_ENTRY]) throw foreign(name);
    }
  }

  /** The credentials that the sandbox was made with; `null` where it is gone. */
  async made(sandboxId: SandboxId, signal: AbortSignal): Promise<Credentials | null> {
    const found = await this.#get(sandboxId, signal);
    const text = found === null ? undefined : secretSchema.parse(found).data[MADE];
    if (text === undefined) return null;
    const { generation, token } = credentialsSchema.parse(JSON.parse(decoded(text)));
    return { generation: generation as Generation, token: token as Token };
  }

  async write(marker: Marker): Promise<void> {
    const text = JSON.stringify(marker);
    const added = await this.#add(marker.sandboxId, `${MARKER}${marker.generation}`, text);
    if (added === "gone") throw new SandlotError("file_not_found", { path: podName(marker.sandboxId) });
    if (added !== "added" && !isSameMarker(added, marker))
      throw new SandlotError("file_exists", { path: `${podName(marker.sandboxId)}/${MARKER}${marker.generation}` });
  }

  async list(sandboxId: SandboxId): Promise<readonly Marker[]> {
    const entries = await this.#entries(sandboxId);
    return Object.entries(entries ?? {})
      .filter(([name]) => name.startsWith(MARKER))
      .map(([, text]) => markerSchema.parse(JSON.parse(text)) as unknown as Marker);
  }

  async drop(sandboxId: SandboxId, generation: Generation): Promise<void> {
    await this.#remove(sandboxId, `${MARKER}${generation}`);
  }

  async isBound(sandboxId: SandboxId, generation: Generation): Promise<boolean> {
    return (await this.#entries(sandboxId))?.[`${BOUND}${generation}`] !== undefined;
  }

  /** `false`: the sandbox is gone. */
  async noteBound(sandboxId: SandboxId, generation: Generation): Promise<boolean> {
    return (await this.#add(sandboxId, `${BOUND}${generation}`, "")) !== "gone";
  }

  async dropBound(sandboxId: SandboxId, generation: Generation): Promise<void> {
    await this.#remove(sandboxId, `${BOUND}${generation}`);
  }

  /** `null` also for the Secret of another fleet in this namespace. */
  async #get(sandboxId: SandboxId, signal: AbortSignal): Promise<ApiObject | null> {
    const found = await this.#api.get("secrets", podName(sandboxId), signal);
    return found?.metadata.labels[LABEL.fleet] === this.#fleetId ? found : null;
  }

  async #entries(sandboxId: SandboxId): Promise<Readonly<Record<string, string>> | null> {
    const found = await this.#get(sandboxId, this.#signal);
    if (found === null) return null;
    const { data } = secretSchema.parse(found);
    return Object.fromEntries(Object.entries(data).map(([name, text]) => [name, decoded(text)]));
  }

  /** The text that is there already, where there is one. */
  async #add(sandboxId: SandboxId, entry: string, text: string): Promise<"added" | "gone" | string> {
    return this.#patched<"added" | "gone" | string>(sandboxId, "gone", (found) => {
      const present = secretSchema.parse(found).data[entry];
      if (present !== undefined) return { done: decoded(present) };
      return { steps: [{ op: "add", path: `/data/${pointer(entry)}`, value: encoded(text) }], done: "added" };
    });
  }

  async #remove(sandboxId: SandboxId, entry: string): Promise<void> {
    await this.#patched<null>(sandboxId, null, (found) => {
      if (secretSchema.parse(found).data[entry] === undefined) return { done: null };
      return { steps: [{ op: "remove", path: `/data/${pointer(entry)}` }], done: null };
    });
  }

  /** Reads, decides, and patches exactly the version that was read. */
  async #patched<T>(
    sandboxId: SandboxId,
    gone: T,
    decide: (found: ApiObject) => { readonly steps?: readonly PatchStep[]; readonly done: T },
  ): Promise<T> {
    const name = podName(sandboxId);
    for (let attempt = 1; ; attempt++) {
      const found = await this.#get(sandboxId, this.#signal);
      if (found === null) return gone;
      const { steps, done } = decide(found);
      if (steps === undefined) return done;
      const { uid, resourceVersion } = found.metadata;
      const same: PatchStep[] = [
        { op: "test", path: "/metadata/uid", value: uid },
        { op: "test", path: "/metadata/resourceVersion", value: resourceVersion },
      ];
      try {
        return (await this.#api.patch("secrets", name, [...same, ...steps], this.#signal)) === null ? gone : done;
      } catch (error) {
        this.#signal.throwIfAborted();
        if (!isInDoubt(error) || attempt >= PATCH_ATTEMPTS) throw error;
      }
    }
  }
}

function isSameMarker(text: string, marker: Marker): boolean {
  const found = markerSchema.safeParse(JSON.parse(text));
  const keys = ["sandboxId", "user", "thread", "generation", "token", "blueprint", "blueprintHash"] as const;
  return found.success && keys.every((key) => found.data[key] === marker[key]);
}

function encoded(text: string): string {
  return Buffer.from(text).toString("base64");
}

function decoded(text: string): string {
  return Buffer.from(text, "base64").toString("utf8");
}

/** A part of a JSON pointer (RFC 6901). */
function pointer(part: string): string {
  return part.replaceAll("~", "~0").replaceAll("/", "~1");
}

function foreign(name: string): SandlotError {
  const problem = `a Secret ${name} of another pod has its name`;
  return new SandlotError("create_failed", { backend: "kubernetes", problem });
}
