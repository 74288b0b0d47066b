/** Each sandbox has a path map; the latest 256 are kept. */

import { describe, expect, it } from "vitest";
import { PATH_MAPS_MAX, PathMaps } from "../../../src/backends/local/unsafe/path-maps.ts";

const layout = { root: "/fleet", objects: "/fleet/objects", sockets: "/fleet/s", egress: "/fleet/s" };

type Held = Parameters<PathMaps["of"]>[0];

function object(name: string): Held {
  const labels = { threadKey: name.padEnd(32, "0") };
  return { name, record: { labels, place: "home", mounts: [] } } as unknown as Held;
}

describe("the path maps of threads", () => {
  it("leads each thread to its own workspace", () => {
    const maps = new PathMaps(layout);
    const paths = ["a1", "b2"].map((name) => maps.of(object(name)).toHost("/mnt/user-data/workspace"));
    expect(paths).toEqual(["a1", "b2"].map((name) => `/fleet/homes/${name.padEnd(32, "0")}/user-data/workspace`));
  });

  it(`holds ${PATH_MAPS_MAX}, and lets go of the one that was used longest ago`, () => {
    const maps = new PathMaps(layout);
    const first = maps.of(object("t0"));
    for (let at = 1; at < PATH_MAPS_MAX; at++) maps.of(object(`t${at}`));
    expect(maps.of(object("t0"))).toBe(first);
    maps.of(object("another"));
    expect([maps.size, maps.has("t0"), maps.has("t1"), maps.has("t2")]).toEqual([PATH_MAPS_MAX, true, false, true]);
  });

  it("forgets a sandbox that is gone", () => {
    const maps = new PathMaps(layout);
    maps.of(object("t0"));
    maps.forget("t0");
    expect(maps.size).toBe(0);
  });
});
