/** Claims of threads through the API server: `ClaimApi` in requests. */

import type { FleetId } from "@sandlot/contract";
import { type Api, type ApiObject, isRefusal, type PatchStep } from "../api/api.ts";
import { LABEL } from "../pod/names.ts";
import type { Claim, ClaimApi, ClaimOutcome, NewClaim } from "./claim-api.ts";

export interface ClaimShape {
  readonly fleetId: FleetId;
  /** `null`: the cluster's default. */
  readonly storageClass: string | null;
  readonly sizeBytes: number;
}

type Version = Pick<Claim, "name" | "uid" | "resourceVersion">;

export class ThreadClaims implements ClaimApi {
  readonly #api: Api;
  readonly #shape: ClaimShape;
  readonly #signal: AbortSignal;

  constructor(api: Api, shape: ClaimShape, signal: AbortSignal) {
    this.#api = api;
    this.#shape = shape;
    this.#signal = signal;
  }

  async get(name: string): Promise<Claim | null> {
    const found = await this.#api.get("persistentvolumeclaims", name, this.#signal);
    return found === null ? null : claimOf(found);
  }

  async create({ name, labels, annotations }: NewClaim): Promise<Claim | "exists"> {
    const { fleetId, storageClass, sizeBytes } = this.#shape;
    const body = {
      apiVersion: "v1",
      kind: "PersistentVolumeClaim",
      metadata: { name, labels: { ...labels, [LABEL.fleet]: fleetId }, annotations },
      spec: {
        accessModes: ["ReadWriteOnce"],
        resources: { requests: { storage: String(sizeBytes) } },
        ...(storageClass !== null && { storageClassName: storageClass }),
      },
    };
    try {
      return claimOf(await this.#api.create("persistentvolumeclaims", body, this.#signal));
    } catch (error) {
      if (isRefusal(error, 409)) return "exists";
      throw error;
    }
  }

  async annotate(claim: Version, annotations: Readonly<Record<string, string>>): Promise<ClaimOutcome> {
    const now = await this.get(claim.name);
    if (now === null) return "absent";
    if (now.uid !== claim.uid || now.resourceVersion !== claim.resourceVersion) return "conflict";
    const merged = { ...now.annotations, ...annotations };
    const steps: PatchStep[] = [...same(claim), { op: "add", path: "/metadata/annotations", value: merged }];
    return this.#outcome(() => this.#api.patch("persistentvolumeclaims", claim.name, steps, this.#signal));
  }

  async remove({ name, uid, resourceVersion }: Version): Promise<ClaimOutcome> {
    const options = { uid, resourceVersion };
    const now = await this.get(name);
    if (now === null) return "absent";
    if (now.uid !== uid || now.resourceVersion !== resourceVersion) return "conflict";
    await this.#api.remove("persistentvolumeclaims", name, options, this.#signal);
    const left = await this.get(name);
    return left === null || left.uid !== uid || left.isBeingDeleted ? "done" : "conflict";
  }

  async *list(): AsyncGenerator<Claim> {
    const labelSelector = `${LABEL.fleet}=${this.#shape.fleetId}`;
    const { items } = await this.#api.list("persistentvolumeclaims", { labelSelector }, this.#signal);
    for (const item of items) yield claimOf(item);
  }

  async #outcome(change: () => Promise<ApiObject | null>): Promise<ClaimOutcome> {
    try {
      return (await change()) === null ? "absent" : "done";
    } catch (error) {
      if (isRefusal(error, 409) || isRefusal(error, 422)) return "conflict";
      throw error;
    }
  }
}

function same({ uid, resourceVersion }: Version): PatchStep[] {
  return [
    { op: "test", path: "/metadata/uid", value: uid },
    { op: "test", path: "/metadata/resourceVersion", value: resourceVersion },
  ];
}

function claimOf({ metadata }: ApiObject): Claim {
  const { name, uid, resourceVersion, labels, annotations, creationTimestamp, deletionTimestamp } = metadata;
  const createdAt = Date.parse(creationTimestamp ?? "") || 0;
  const isBeingDeleted = typeof deletionTimestamp === "string";
  return { name, uid, resourceVersion, labels, annotations, createdAt, isBeingDeleted };
}
