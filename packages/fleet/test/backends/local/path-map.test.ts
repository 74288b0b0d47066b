/** Paths without namespaces: the mapping in both directions. */

import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { afterAll, describe, expect, it } from "vitest";
import { PathMap } from "../../../src/backends/local/unsafe/path-map.ts";

const root = mkdtempSync(join(tmpdir(), "sl-map-"));
const [data, skills, nested] = [join(root, "data"), join(root, "skills"), join(root, "skills/own")];
for (const directory of [data, skills, nested]) mkdirSync(directory, { recursive: true });
writeFileSync(join(root, "secret"), "");
symlinkSync(join(root, "secret"), join(data, "out"));
symlinkSync(skills, join(data, "sly"));
symlinkSync(join(data, "missing"), join(data, "inside"));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const map = new PathMap([
  { seen: "/mnt/user-data", host: data, readOnly: false },
  { seen: "/mnt/skills", host: skills, readOnly: true },
  { seen: "/mnt/skills/own", host: nested, readOnly: false },
]);

describe("a path", () => {
  it.each([
    ["/mnt/user-data", data],
    ["/mnt/user-data/a/../b", join(data, "b")],
    ["/mnt/user-data/", `${data}/`],
    ["/mnt/skills/own/x", join(nested, "x")],
    ["/mnt/user-data-2/x", "/mnt/user-data-2/x"],
    ["/etc/hostname", "/etc/hostname"],
    ["/mnt/user-data/inside", join(data, "inside")],
  ])("%s is at %s", (seen, host) => expect(map.toHost(seen)).toBe(host));

  it("leaves its directory neither by dots nor by a link", () => {
    expect(map.toHost("/mnt/user-data/../../etc")).toBe("/mnt/user-data/../../etc");
    expect(refusal(() => map.toHost("/mnt/user-data/out"))).toBe("invalid_path");
    expect(refusal(() => map.toHost("/mnt/user-data/out", { keepsLink: true }))).toBe("none");
  });

  it("is read-only by where it really is", () => {
    const writes = { writes: true };
    expect(refusal(() => map.toHost("/mnt/skills/x", writes))).toBe("read_only_path");
    expect(refusal(() => map.toHost("/mnt/user-data/sly/x", writes))).toBe("read_only_path");
    expect(refusal(() => map.toHost("/mnt/skills/own/x", writes))).toBe("none");
    expect(refusal(() => map.toHost("/mnt/user-data/x", writes))).toBe("none");
  });

  it("comes back as it was asked for", () => {
    expect(map.toSeen(join(data, "a"))).toBe("/mnt/user-data/a");
    expect(map.toSeen(join(nested, "a"))).toBe("/mnt/skills/own/a");
    expect(map.toSeen(`${data}-2`)).toBe(`${data}-2`);
  });
});

describe("a text", () => {
  it.each([
    ["cat /mnt/user-data/x", `cat ${data}/x`],
    ['cp "/mnt/user-data/a" /mnt/skills/own', `cp "${data}/a" ${nested}`],
    ["ls /mnt/user-data; ls /mnt/user-data,", `ls ${data}; ls ${data},`],
    ["ls /mnt/user-data-2 /x/mnt/user-data ./mnt/user-data", "ls /mnt/user-data-2 /x/mnt/user-data ./mnt/user-data"],
    ["PATH=/mnt/skills/own:/bin", `PATH=${nested}:/bin`],
  ])("%s is given as %s, and back", (seen, host) => {
    expect(map.textToHost(seen)).toBe(host);
    expect(map.textToSeen(host)).toBe(seen);
  });
});

function refusal(call: () => unknown): string {
  try {
    call();
    return "none";
  } catch (error) {
    return isSandlotError(error) ? error.code : String(error);
  }
}
