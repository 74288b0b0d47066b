/** A folder as a tar archive, read by the system's tar. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type FileListing, type FileStat, SandlotError } from "@sandlot/contract";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { folderTar } from "../../src/gateway/streams/folder-tar.ts";
import { richBackend } from "./support/rich-backend.ts";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

const WORKSPACE = "/mnt/user-data/workspace";
let stage: Stage;
let alice: Caller;
const folders: string[] = [];

beforeAll(async () => {
  stage = await openStage({ enrich: richBackend });
  alice = await stage.user("alice");
});
afterAll(() => stage.done());
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

function unpacked(archive: Uint8Array): string {
  const folder = mkdtempSync(join(tmpdir(), "sla-"));
  folders.push(folder);
  writeFileSync(join(folder, "archive.tar"), archive);
  execFileSync("tar", ["-xf", "archive.tar"], { cwd: folder });
  rmSync(join(folder, "archive.tar"));
  return folder;
}

async function archiveOf(thread: string, path: string): Promise<Uint8Array> {
  const response = await alice.call("GET", `/v1/threads/${thread}/files/archive?path=${encodeURIComponent(path)}`);
  expect([response.status, response.headers.get("content-type")]).toEqual([200, "application/octet-stream"]);
  return new Uint8Array(await response.arrayBuffer());
}

test("has every file and folder below it, with odd names, empty ones and large ones", async () => {
  const put = (path: string, content: Uint8Array | string) =>
    alice.ask(200, "PUT", `/v1/threads/tree/files/content?path=${encodeURIComponent(`${WORKSPACE}/${path}`)}`, {
      body: typeof content === "string" ? new TextEncoder().encode(content) : content,
    });
  const large = new Uint8Array(3_000_001).map((_, at) => at % 251);
  const long = `${"long".repeat(50)}.txt`;
  await put("site/index.html", "<p>hello");
  await put("site/empty", "");
  await put("site/deep/er/large.bin", large);
  await put("site/ünïcode – name.txt", "x");
  await put(`site/${long}`, "y");
  await alice.ask(204, "POST", "/v1/threads/tree/files/mkdir", { json: { path: `${WORKSPACE}/site/hollow` } });
  const folder = unpacked(await archiveOf("tree", `${WORKSPACE}/site`));
  const names = readdirSync(folder, { recursive: true }).map(String).sort();
  expect(names).toEqual(
    [
      ...["site", "site/deep", "site/deep/er", "site/deep/er/large.bin", "site/empty", "site/hollow"],
      ...["site/index.html", `site/${long}`, "site/ünïcode – name.txt"],
    ].sort(),
  );
  expect(readFileSync(join(folder, "site/index.html"), "utf8")).toBe("<p>hello");
  expect(readFileSync(join(folder, "site/deep/er/large.bin")).equals(large)).toBe(true);
  expect(statSync(join(folder, "site/empty")).size).toBe(0);
});

test("is refused for what is no folder, and for what is not there", async () => {
  await alice.ask(200, "POST", "/v1/threads/tree/exec", { json: { command: "echo x > plain" } });
  for (const [path, code] of [
    [`${WORKSPACE}/plain`, "not_a_directory"],
    [`${WORKSPACE}/none`, "file_not_found"],
  ]) {
    const response = await alice.call("GET", `/v1/threads/tree/files/archive?path=${path}`);
    expect(((await response.json()) as { error: { code: string } }).error.code).toBe(code);
  }
});

const statOf = (path: string, kind: FileStat["kind"], sizeBytes = 0): FileStat => ({
  ...{ path, kind, sizeBytes, mode: 0o644, modifiedAt: Number.NaN, version: "1" },
});
async function bytesOf(source: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  for await (const piece of source) pieces.push(piece);
  return Buffer.concat(pieces);
}
const signal = new AbortController().signal;

test("names what it leaves out: links, devices, folders that go away or are too deep", async () => {
  const files = {
    list: async (path: string): Promise<FileListing> => {
      if (path === "/f/gone") throw new SandlotError("file_not_found", { path });
      const odd = [statOf("/f/link", "symlink"), statOf("/f/fifo", "other"), statOf("/f/gone", "directory")];
      const inner = path === "/f" ? odd : [];
      return { entries: [...inner, statOf(`${path}/d`, "directory")], truncated: path === "/f" };
    },
    async *download() {
      yield new Uint8Array();
    },
  };
  const folder = unpacked(await bytesOf(folderTar(files, statOf("/f", "directory"), signal)));
  const left = readFileSync(join(folder, "f/LEFT-OUT.txt"), "utf8");
  expect(left).toContain('"f/link": a link');
  expect(left).toContain('"f/fifo": neither a file nor a folder');
  expect(left).toContain('"f": it has more entries than one listing');
  expect(left).toContain('"f/gone": it was removed meanwhile');
  expect(left).toContain("more than 100 folders deep");
});

test("unpacks nothing outside of its folder, and is bounded, whatever a listing says", async () => {
  const wide = Array.from({ length: 10_000 }, (_, at) => at);
  let asked = 0;
  const files = {
    list: async (path: string): Promise<FileListing> => {
      asked += 1;
      const strange = ["/etc/passwd", "/f/../../x", "/f/a/b", "/f/", "/f/..", "/other"].map((one) =>
        statOf(one, "file"),
      );
      const folders = wide.map((at) => statOf(`${path}/d${at}`, "directory"));
      return { entries: path === "/f" ? [...strange, ...folders] : folders, truncated: false };
    },
    async *download() {
      yield new Uint8Array([65]);
    },
  };
  const archive = Buffer.from(await bytesOf(folderTar(files, statOf("/f", "directory"), signal)));
  const names = execFileSync("tar", ["-tf", "-"], { input: archive, encoding: "utf8", maxBuffer: 1e9 }).split("\n");
  expect(names.length).toBeLessThanOrEqual(100_003);
  expect(names.filter((name) => name !== "" && !/^f\/(d\d+\/)*(LEFT-OUT\.txt)?$/.test(name))).toEqual([]);
  expect(asked).toBeLessThanOrEqual(20);
}, 120_000);

test("cuts what grew meanwhile, and ends with an error where a file became shorter", async () => {
  const files = (given: number) => ({
    list: async (): Promise<FileListing> => ({ entries: [statOf("/f/a", "file", 1_000)], truncated: false }),
    async *download() {
      yield new Uint8Array(given).fill(65);
    },
  });
  const folder = unpacked(await bytesOf(folderTar(files(5_000), statOf("/f", "directory"), signal)));
  expect(statSync(join(folder, "f/a")).size).toBe(1_000);
  await expect(bytesOf(folderTar(files(999), statOf("/f", "directory"), signal))).rejects.toThrow("became shorter");
});

test("gives its lease back when the reader leaves half-way", async () => {
  await alice.ask(200, "POST", "/v1/threads/left/exec", {
    json: { command: "mkdir big; for i in 1 2 3 4; do dd if=/dev/zero of=big/$i bs=1M count=16 2>/dev/null; done" },
  });
  const leave = new AbortController();
  const response = await fetch(`${alice.url}/v1/threads/left/files/archive?path=${WORKSPACE}/big`, {
    headers: { authorization: `Bearer ${alice.key}` },
    signal: leave.signal,
  });
  await response.body?.getReader().read();
  leave.abort();
  await expect
    .poll(async () => (await stage.fleet.find({ user: "alice", thread: "left" }))?.holders.length, { timeout: 30_000 })
    .toBe(0);
});
