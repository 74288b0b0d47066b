import { createHash } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { SANDBOX_LIMITS } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { give } from "../../src/world/given-bytes.ts";
import { attached } from "./attached.ts";
import { code } from "./expectations.ts";

async function workspace() {
  const { sandbox, daemon } = await attached();
  return { sandbox, files: sandbox.files, root: daemon.workspace, at: (name: string) => join(daemon.workspace, name) };
}

describe("reading", () => {
  test("gives bytes and ranges of them", async () => {
    const { files, at } = await workspace();
    const bytes = Uint8Array.from({ length: 1_000_000 }, (_, i) => (i * 31) % 256);
    writeFileSync(at("b"), bytes);
    writeFileSync(at("empty"), "");
    expect(await files.read(at("b"))).toEqual(bytes);
    expect(await files.read(at("b"), { offset: 999_990 })).toEqual(bytes.slice(999_990));
    expect(await files.read(at("b"), { offset: 10, length: 5 })).toEqual(bytes.slice(10, 15));
    expect(await files.read(at("b"), { offset: 2_000_000 })).toEqual(new Uint8Array(0));
    expect(await files.read(at("b"), { length: 0 })).toEqual(new Uint8Array(0));
    expect(await files.read(at("empty"))).toEqual(new Uint8Array(0));
    expect(await code(files.read(at("b"), { offset: -1 }))).toBe("invalid_request");
    expect(await code(files.read(at("b"), { length: 1.5 }))).toBe("invalid_request");
  });

  test("gives text and lines of it", async () => {
    const { files, at } = await workspace();
    writeFileSync(at("t"), "\ufeffeins\nzwei\r\ndrei ä\n\nfünf");
    writeFileSync(at("end"), "a\nb\n");
    expect(await files.readText(at("t"))).toBe("\ufeffeins\nzwei\r\ndrei ä\n\nfünf");
    expect(await files.readText(at("t"), { startLine: 2, endLine: 3 })).toBe("zwei\r\ndrei ä");
    expect(await files.readText(at("t"), { startLine: 4 })).toBe("\nfünf");
    expect(await files.readText(at("t"), { endLine: 1 })).toBe("\ufeffeins");
    expect(await files.readText(at("t"), { startLine: 9 })).toBe("");
    expect(await files.readText(at("end"), { startLine: 1, endLine: 9 })).toBe("a\nb");
    expect(await files.readText(at("end"), {})).toBe("a\nb\n");
    expect(await code(files.readText(at("t"), { startLine: 0 }))).toBe("invalid_request");
    expect(await code(files.readText(at("t"), { startLine: 3, endLine: 2 }))).toBe("invalid_request");
    const long = Array.from({ length: 200_000 }, (_, i) => `line ${i + 1}`);
    writeFileSync(at("long"), long.join("\n"));
    expect(await files.readText(at("long"), { startLine: 150_000, endLine: 150_001 })).toBe("line 150000\nline 150001");
    expect(await files.readText(at("long"), { startLine: 1, endLine: 199_999 })).toBe(long.slice(0, -1).join("\n"));
  });

  test("refuses what is too large, no file, or not there", async () => {
    const { sandbox, files, at, root } = await workspace();
    await sandbox.exec(`truncate -s ${SANDBOX_LIMITS.readMaxBytes + 1} big; mkfifo fifo; ln -s loop loop`);
    expect(await code(files.read(at("big")))).toBe("file_too_large");
    expect((await files.read(at("big"), { offset: SANDBOX_LIMITS.readMaxBytes })).length).toBe(1);
    expect(await code(files.read(at("fifo")))).toBe("invalid_path");
    expect(await code(files.read(at("loop")))).toBe("invalid_path");
    expect(await code(files.read(root))).toBe("is_a_directory");
    expect(await code(files.read(at("missing")))).toBe("file_not_found");
    expect(await code(files.read(at("big/x")))).toBe("not_a_directory");
    expect(await code(files.read("relative"))).toBe("invalid_path");
    expect(await code(files.read("/a\0b"))).toBe("invalid_path");
    expect(await code(files.read(`/${"x".repeat(256)}`))).toBe("invalid_path");
    expect(await code(files.read(`/${"x/".repeat(3_000)}`))).toBe("invalid_path");
    expect(await code(files.read("/\ud800"))).toBe("invalid_path");
    expect((await files.readText("/proc/self/status")).length).toBeGreaterThan(100);
    expect(await files.read("/dev/null")).toEqual(new Uint8Array(0));
    expect(await code(files.read("/dev/zero"))).toBe("file_too_large");
  });
});

describe("writing", () => {
  test("makes parents, keeps the mode, and follows links", async () => {
    const { files, at } = await workspace();
    await files.write(at("a/b/c.txt"), "grüße");
    expect(readFileSync(at("a/b/c.txt"), "utf8")).toBe("grüße");
    expect(statSync(at("a/b/c.txt")).mode & 0o777).toBe(0o644);
    chmodSync(at("a/b/c.txt"), 0o751);
    await files.write(at("a/b/c.txt"), "neu");
    expect(statSync(at("a/b/c.txt")).mode & 0o7777).toBe(0o751);
    await files.write(at("a/b/c.txt"), "neuer", { mode: 0o600 });
    expect(statSync(at("a/b/c.txt")).mode & 0o7777).toBe(0o600);
    chmodSync(at("a/b/c.txt"), 0o6711);
    await files.write(at("a/b/c.txt"), "am neuesten");
    expect(statSync(at("a/b/c.txt")).mode & 0o7777).toBe(0o711);
    symlinkSync("a/b/c.txt", at("link"));
    await files.write(at("link"), "durch");
    expect(readlinkSync(at("link"))).toBe("a/b/c.txt");
    expect(readFileSync(at("a/b/c.txt"), "utf8")).toBe("durch");
    symlinkSync("not-yet", at("dangling"));
    await files.write(at("dangling"), "da");
    expect(readFileSync(at("not-yet"), "utf8")).toBe("da");
    expect(readdirSync(at("."))).not.toContainEqual(expect.stringContaining(".tmp"));
  });

  test("is seen whole or not at all", async () => {
    const { files, at } = await workspace();
    const versions = ["a".repeat(400_000), "b".repeat(300_000)];
    await files.write(at("f"), "a".repeat(400_000));
    let done = false;
    const writing = (async () => {
      for (let i = 0; i < 40; i++) await files.write(at("f"), versions[i % 2] ?? "");
      done = true;
    })();
    while (!done) {
      const seen = readFileSync(at("f"), "latin1");
      expect(versions.includes(seen)).toBe(true);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await writing;
  });

  test("that is broken off leaves what was there", async () => {
    const { sandbox, files, at, root } = await workspace();
    await files.write(at("f"), "before");
    const failure = new Error("the source failed");
    async function* broken() {
      yield Buffer.alloc(300_000);
      throw failure;
    }
    const beside = sandbox.exec("sleep 0.5; echo fine");
    // It is the caller's own error, and affects no other call.
    await expect(files.upload(at("f"), broken())).rejects.toBe(failure);
    expect((await beside).stdout).toBe("fine\n");
    await expect.poll(() => readdirSync(root)).toEqual(["f"]);
    expect(readFileSync(at("f"), "utf8")).toBe("before");
  });

  test("that is refused does not wait for the rest of its content", async () => {
    const { files, root } = await workspace();
    let isOver = false;
    async function* endless() {
      try {
        for (;;) yield Buffer.alloc(100_000);
      } finally {
        isOver = true;
      }
    }
    await expect(files.upload(root, endless())).rejects.toMatchObject({ code: "is_a_directory" });
    await expect.poll(() => isOver).toBe(true);
    expect(readdirSync(root)).toEqual([]);
  });

  test("of an upload frees the pieces that it was given, once they are sent, and no others", async () => {
    const { files, at } = await workspace();
    const pieces = ["a", "b", "c"].map((letter) =>
      Buffer.from(new Uint8Array(100_000).fill(letter.charCodeAt(0)).buffer),
    );
    const [kept, ...given] = pieces;
    async function* content() {
      if (kept !== undefined) yield kept;
      for (const piece of given) yield give(piece);
    }
    await files.upload(at("f"), content());
    expect(readFileSync(at("f"), "latin1")).toBe(["a", "b", "c"].map((letter) => letter.repeat(100_000)).join(""));
    expect(pieces.map(({ length }) => length)).toEqual([100_000, 0, 0]);
  });

  test("streams what does not fit in one piece, there and back", async () => {
    const { files, at } = await workspace();
    const hash = createHash("sha256");
    async function* chunks() {
      for (let i = 0; i < 1_100; i++) {
        const chunk = Buffer.alloc(100_000 + i, i);
        hash.update(chunk);
        yield chunk;
      }
    }
    await files.upload(at("large"), chunks(), { mode: 0o640 });
    const wanted = hash.digest("hex");
    const got = createHash("sha256");
    let size = 0;
    for await (const chunk of files.download(at("large"))) {
      got.update(chunk);
      size += chunk.length;
    }
    expect(size).toBeGreaterThan(SANDBOX_LIMITS.readMaxBytes);
    expect(got.digest("hex")).toBe(wanted);
    expect(statSync(at("large")).mode & 0o777).toBe(0o640);
    await expect(files.download(at("missing")).next()).rejects.toMatchObject({ code: "file_not_found" });
    for await (const chunk of files.download(at("large"))) if (chunk.length > 0) break;
    expect((await files.stat(at("large"))).sizeBytes).toBe(size);
  });

  test("is refused with the reason", async () => {
    const { sandbox, files, at, root } = await workspace();
    writeFileSync(at("file"), "x");
    mkdirSync(at("dir"));
    await sandbox.exec("mkfifo fifo");
    expect(await code(files.write(at("dir"), "x"))).toBe("is_a_directory");
    expect(await code(files.write(at("file/x"), "x"))).toBe("not_a_directory");
    expect(await code(files.write(at("fifo"), "x"))).toBe("invalid_path");
    expect(await code(files.write(at("file"), "x", { mode: 0o10000 }))).toBe("invalid_request");
    expect(await code(files.write(at("file"), "x", { mode: -1 }))).toBe("invalid_request");
    for (const mode of [0o4755, 0o2755])
      expect(await code(files.write(at("file"), "x", { mode }))).toBe("invalid_request");
    expect(await code(files.append(root, "x"))).toBe("is_a_directory");
    expect(["read_only_path", "permission_denied", "file_not_found"]).toContain(
      await code(files.write("/proc/sys/nothing", "x")),
    );
    await files.write("/dev/null", "gone");
    expect(statSync("/dev/null").isCharacterDevice()).toBe(true);
    // A refused large body does not spoil the connection.
    expect(await code(files.write(at("dir"), Buffer.alloc(5_000_000)))).toBe("is_a_directory");
    expect((await sandbox.exec("echo fine")).stdout).toBe("fine\n");
  });

  test("appends natively, also many at once", async () => {
    const { files, at } = await workspace();
    await Promise.all(
      Array.from({ length: 50 }, (_, i) => files.append(at("log/x"), `${String(i).padStart(4, "0")}\n`)),
    );
    const lines = readFileSync(at("log/x"), "utf8").split("\n").filter(Boolean);
    expect(lines.toSorted()).toEqual(Array.from({ length: 50 }, (_, i) => String(i).padStart(4, "0")));
    await files.append(at("log/x"), Uint8Array.of(0, 255));
    expect(readFileSync(at("log/x")).subarray(-2)).toEqual(Buffer.from([0, 255]));
  });
});

describe("names", () => {
  test("are made, moved and removed", async () => {
    const { files, at } = await workspace();
    await files.mkdir(at("a/b"));
    await files.mkdir(at("a/b"));
    await files.write(at("a/f"), "x");
    expect(await code(files.mkdir(at("a/f")))).toBe("not_a_directory");
    expect(await code(files.mkdir(at("a/f/g")))).toBe("not_a_directory");
    symlinkSync("nowhere", at("a/dangling"));
    expect(await code(files.mkdir(at("a/dangling/g")))).toBe("not_a_directory");
    symlinkSync("b", at("a/leads"));
    await files.mkdir(at("a/leads/further"));
    await files.remove(at("a/b/further"));
    // The kernel reports every name there as missing, and its directory as present.
    for (const make of ["mkdir", "write", "append"] as const) {
      expect(await code(files[make]("/proc/x/y", ""))).toBe("permission_denied");
    }
    expect(await code(files.mkdir("/proc/x"))).toBe("permission_denied");
    await files.rename(at("a/f"), at("a/g"));
    await files.write(at("a/h"), "y");
    await files.rename(at("a/g"), at("a/h"));
    expect(readFileSync(at("a/h"), "utf8")).toBe("x");
    expect(await code(files.rename(at("nothing"), at("x")))).toBe("file_not_found");
    expect(await code(files.rename(at("a/h"), at("no/where")))).toBe("file_not_found");
    expect(await code(files.rename(at("a/h"), at("a/b")))).toBe("is_a_directory");
    expect(await code(files.rename(at("a/b"), at("a/h")))).toBe("not_a_directory");
    expect(await code(files.rename(at("a"), at("a/b/c")))).toBe("invalid_path");
    await files.write(at("full/x"), "1");
    expect(await code(files.rename(at("a"), at("full")))).toBe("directory_not_empty");
    expect(await code(files.remove(at("a")))).toBe("directory_not_empty");
    await files.remove(at("a/b"));
    await files.remove(at("a/h"));
    await files.remove(at("full"), { recursive: true });
    expect(existsSync(at("full"))).toBe(false);
    expect(await code(files.remove(at("full"), { recursive: true }))).toBe("file_not_found");
    expect(await code(files.remove("/", { recursive: true }))).toBe("read_only_path");
  });

  test("move between mounts", async (context) => {
    const { sandbox, files, at } = await workspace();
    const shm = (await sandbox.exec("mktemp -d /dev/shm/sd-XXXXXX")).stdout.trim();
    if (shm === "" || statSync(shm).dev === statSync(at(".")).dev)
      return context.skip("/dev/shm is no mount of its own");
    await sandbox.exec(`mkdir d; echo x > d/f; chmod 750 d; ln -s f d/l; touch -d @1000 d/f`);
    await files.rename(at("d"), `${shm}/e`);
    expect(existsSync(at("d"))).toBe(false);
    expect(await sandbox.exec(`cat ${shm}/e/l; stat -c '%a %Y' ${shm}/e ${shm}/e/f; ls -A ${shm}`)).toMatchObject({
      stdout: expect.stringMatching(/^x\n750 \d+\n644 1000\ne\n$/),
    });
    await files.remove(shm, { recursive: true });
  });

  test("are looked at without following links", async () => {
    const { files, at, root } = await workspace();
    writeFileSync(at("f"), "12345", { mode: 0o640 });
    symlinkSync("f", at("l"));
    const before = Date.now() - 60_000;
    expect(await files.stat(at("f"))).toEqual({
      path: at("f"),
      kind: "file",
      sizeBytes: 5,
      mode: 0o640,
      modifiedAt: expect.any(Number),
      version: expect.any(String),
    });
    expect((await files.stat(at("f"))).modifiedAt).toBeGreaterThan(before);
    expect(await files.stat(`${root}//./x/../l`)).toMatchObject({ path: at("l"), kind: "symlink" });
    expect(await files.stat(root)).toMatchObject({ kind: "directory" });
    expect(await files.stat("/dev/null")).toMatchObject({ kind: "other" });
    await files.remove(at("l"));
    expect(existsSync(at("f"))).toBe(true);
  });
});
