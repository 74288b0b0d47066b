/**
 * Path maps of threads' sandboxes, cached for the next attach. At most `PATH_MAPS_MAX`; the least recently used goes
 * first, and is rebuilt from disk when its sandbox is next used.
 */

import { type ThreadKey, WORKSPACE_ROOT } from "@sandlot/contract";
import type { Layout, ObjectName } from "../../../host/layout.ts";
import { Layout as DiskLayout, slotNameOf } from "../../../host/workspaces/layout.ts";
import type { LocalObject } from "../objects/object-store.ts";
import { PathMap } from "./path-map.ts";
import { mappingsOf } from "./unsafe-engine.ts";

/** More than a machine without namespaces needs; each takes a few kilobytes. */
export const PATH_MAPS_MAX = 256;

export class PathMaps {
  readonly #layout: Layout;
  /** The least recently used comes first. */
  readonly #maps = new Map<ObjectName, PathMap>();

  constructor(layout: Layout) {
    this.#layout = layout;
  }

  get size(): number {
    return this.#maps.size;
  }

  has(name: ObjectName): boolean {
    return this.#maps.has(name);
  }

  of(object: Pick<LocalObject, "name" | "record">): PathMap {
    const map = this.#maps.get(object.name) ?? this.#make(object);
    this.#maps.delete(object.name);
    this.#maps.set(object.name, map);
    const [oldest] = this.#maps.keys();
    if (this.#maps.size > PATH_MAPS_MAX && oldest !== undefined) this.#maps.delete(oldest);
    return map;
  }

  forget(name: ObjectName): void {
    this.#maps.delete(name);
  }

  #make({ name, record }: Pick<LocalObject, "name" | "record">): PathMap {
    const { threadKey } = record.labels;
    const disk = new DiskLayout(this.#layout.root);
    const slot = slotNameOf(record.place);
    const to = slot === null ? WORKSPACE_ROOT : "/mnt";
    const from = slot === null ? disk.userData(threadKey ?? ("" as ThreadKey)) : disk.mnt(slot);
    return new PathMap(mappingsOf(this.#layout, name, [{ from, to, readOnly: false }, ...record.mounts]));
  }
}
