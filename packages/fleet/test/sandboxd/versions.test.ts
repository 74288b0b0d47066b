/** Writing over a given version of a file, and parts of large files. */

import { chmodSync, existsSync, readdirSync, readFileSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { attached } from "./attached.ts";
import { code } from "./expectations.ts";

async function workspace() {
  const { sandbox, daemon } = await attached();
  const version = async (path: string) => (await sandbox.files.stat(path)).version;
  return {
    files: sandbox.files,
    sandbox,
    root: daemon.workspace,
    at: (name: string) => join(daemon.workspace, name),
    version,
  };
}

describe("the version of a file", () => {
  test("changes with its content, and only then", async () => {
    const { files, at, version } = await workspace();
    writeFileSync(at("f"), "one");
    const first = await version(at("f"));
    expect(await version(at("f"))).toBe(first);
    await files.read(at("f"));
    chmodSync(at("f"), 0o600);
    expect(await version(at("f"))).toBe(first);
    const seen = new Set([first]);
    // In place with the same length, in place with another one, in one step, by appending.
    writeFileSync(at("f"), "two");
    utimesSync(at("f"), 1, 1);
    seen.add(await version(at("f")));
    writeFileSync(at("f"), "longer");
    seen.add(await version(at("f")));
    await files.write(at("f"), "longer");
    seen.add(await version(at("f")));
    await files.append(at("f"), "!");
    seen.add(await version(at("f")));
    expect(seen.size).toBe(5);
    const [entry] = (await files.list(at("."))).entries;
    expect(entry?.version).toBe(await version(at("f")));
    symlinkSync("f", at("l"));
    expect(await version(at("l"))).toBe(entry?.version);
  });

  test("that is expected must be there", async () => {
    const { files, at, root, version } = await workspace();
    await files.write(at("f"), "one", { mode: 0o640 });
    const before = await version(at("f"));
    await files.write(at("f"), "two", { ifVersion: before });
    const refusal = await files.write(at("f"), "three", { ifVersion: before }).catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(SandlotError);
    const actual = await version(at("f"));
    expect(refusal).toMatchObject({ code: "file_changed", details: { path: at("f"), expected: before, actual } });
    expect(readFileSync(at("f"), "utf8")).toBe("two");
    expect(await code(files.write(at("g"), "x", { ifVersion: before }))).toBe("file_changed");
    expect(existsSync(at("g"))).toBe(false);
    symlinkSync("f", at("l"));
    await files.write(at("l"), "through", { ifVersion: await version(at("l")) });
    expect(readFileSync(at("f"), "utf8")).toBe("through");
    expect((await files.stat(at("f"))).mode).toBe(0o640);
    expect(readdirSync(root).sort()).toEqual(["f", "l"]);
  });

  test("that is none means that nothing may be there", async () => {
    const { files, at, root } = await workspace();
    await files.write(at("d/new"), "one", { ifVersion: null, mode: 0o600 });
    expect((await files.stat(at("d/new"))).mode).toBe(0o600);
    expect(await code(files.write(at("d/new"), "two", { ifVersion: null }))).toBe("file_changed");
    expect(readFileSync(at("d/new"), "utf8")).toBe("one");
    expect(readdirSync(join(root, "d"))).toEqual(["new"]);
  });

  test("lets one of many writers win, and what changes meanwhile is noticed late", async () => {
    const { files, at, root, version } = await workspace();
    writeFileSync(at("f"), "start");
    const expected = await version(at("f"));
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => code(files.write(at("f"), `writer ${i}`, { ifVersion: expected }))),
    );
    expect(answers.filter((answer) => answer === "no error")).toHaveLength(1);
    expect(answers.filter((answer) => answer === "file_changed")).toHaveLength(19);
    const news = await Promise.all(
      Array.from({ length: 20 }, (_, i) => code(files.write(at("n"), `writer ${i}`, { ifVersion: null }))),
    );
    expect(news.filter((answer) => answer === "no error")).toHaveLength(1);

    const present = await version(at("f"));
    const slow = async function* () {
      yield Buffer.from("first ");
      // Another writer is quicker, after the check at the beginning.
      await files.write(at("f"), "somebody else");
      yield Buffer.from("second");
    };
    expect(await code(files.upload(at("f"), slow(), { ifVersion: present }))).toBe("file_changed");
    expect(readFileSync(at("f"), "utf8")).toBe("somebody else");
    expect(readdirSync(root).sort()).toEqual(["f", "n"]);
  });
});

describe("a download", () => {
  test("is all of a file or a range of it", async () => {
    const { files, at } = await workspace();
    const content = Buffer.from(Uint8Array.from({ length: 1_000_000 }, (_, i) => (i * 7) % 253));
    writeFileSync(at("f"), content);
    const get = async (path: string, range?: { offset?: number; length?: number }) => {
      const parts: Uint8Array[] = [];
      for await (const part of files.download(path, range)) parts.push(part);
      return Buffer.concat(parts);
    };
    expect((await get(at("f"))).equals(content)).toBe(true);
    expect((await get(at("f"), { offset: 999_990 })).equals(content.subarray(999_990))).toBe(true);
    expect((await get(at("f"), { offset: 10, length: 600_000 })).equals(content.subarray(10, 600_010))).toBe(true);
    expect((await get(at("f"), { length: 0 })).length).toBe(0);
    expect((await get(at("f"), { offset: 2_000_000 })).length).toBe(0);
    expect((await get(at("f"), { offset: 999_999, length: 9 })).length).toBe(1);
    // A file of unknown size.
    expect((await get("/proc/self/status", { offset: 0, length: 5 })).toString()).toBe("Name:");
    expect((await get("/dev/zero", { length: 100_000 })).equals(Buffer.alloc(100_000))).toBe(true);
    expect(await code(get(at("missing")))).toBe("file_not_found");
  });
});
