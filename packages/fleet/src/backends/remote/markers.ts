/** Markers of sandboxes at a provisioner: in the files of their objects. */

import { type Generation, type SandboxId, SandlotError } from "@sandlot/contract";
import type { Marker } from "../../backend/labels.ts";
import type { Markers } from "../../backend/markers.ts";
import type { RemoteRecord, RemoteRecords } from "./records.ts";

export class RemoteMarkers implements Markers {
  readonly #records: RemoteRecords;
  /** Whether an id is of this fleet at this provisioner. */
  readonly #isOwn: (id: string) => boolean;

  constructor(records: RemoteRecords, isOwn: (id: string) => boolean) {
    this.#records = records;
    this.#isOwn = isOwn;
  }

  async write(marker: Marker): Promise<void> {
    const [found] = await this.#objects(marker.sandboxId);
    if (found === undefined) throw new SandlotError("file_not_found", { path: `marker of ${marker.sandboxId}` });
    const { id, record } = found;
    const present = record.markers.find(({ generation }) => generation === marker.generation);
    if (present !== undefined && present.token !== marker.token)
      throw new SandlotError("file_exists", { path: `marker of ${marker.sandboxId}` });
    if (present === undefined) await this.#records.keepObject(id, { ...record, markers: [...record.markers, marker] });
  }

  async list(sandboxId: SandboxId): Promise<readonly Marker[]> {
    return (await this.#objects(sandboxId)).flatMap(({ record }) => record.markers);
  }

  async drop(sandboxId: SandboxId, generation: Generation): Promise<void> {
    for (const { id, record } of await this.#objects(sandboxId)) {
      const markers = record.markers.filter((marker) => marker.generation !== generation);
      if (markers.length < record.markers.length) await this.#records.keepObject(id, { ...record, markers });
    }
  }

  async #objects(sandboxId: SandboxId): Promise<readonly { readonly id: string; readonly record: RemoteRecord }[]> {
    const ids = (await this.#records.objectIds(sandboxId)).filter(this.#isOwn);
    const found = await Promise.all(ids.map(async (id) => ({ id, record: await this.#records.object(id) })));
    return found.flatMap(({ id, record }) => (record === null ? [] : [{ id, record }]));
  }
}
