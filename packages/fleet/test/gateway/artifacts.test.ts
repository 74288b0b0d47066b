/** Artifacts: how they are shown, refused and written back. */

import { createHash } from "node:crypto";
import { request as httpRequest } from "node:http";
import { crc32, deflateRawSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;
const OUTPUTS = "/mnt/user-data/outputs";

beforeAll(async () => {
  stage = await openStage();
  alice = await stage.user("alice");
  const command =
    `cd ${OUTPUTS}; printf '# Report' > report.md; printf '<script>alert(1)</script>' > page.html; printf '<svg/>' > i.svg; ` +
    `mkdir sub; printf 0123456789 > sub/digits.txt; ln -s /etc/hostname link.txt; ln -s /etc out; printf 'a\\000b' > binary.txt`;
  await alice.ask(200, "POST", "/v1/threads/a/exec", { json: { command } });
});
afterAll(() => stage.done());

const text = (value: string) => createHash("sha256").update(value).digest("hex");

/** A raw path, which fetch would normalise first. */
function rawStatus(path: string): Promise<number> {
  const { port, hostname } = new URL(stage.gateway.url);
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${alice.key}` };
    const sent = httpRequest({ hostname, port, path, headers }, (answer) => {
      answer.resume();
      resolve(answer.statusCode ?? 0);
    });
    sent.on("error", reject).end();
  });
}

describe("artifacts", () => {
  test("are shown where they stand", async () => {
    for (const path of [
      "/v1/threads/a/artifacts/report.md",
      "/v1/threads/a/artifacts/mnt/user-data/outputs/report.md",
    ]) {
      const response = await alice.call("GET", path);
      expect(await response.text()).toBe("# Report");
      expect(response.headers.get("content-type")).toBe("text/markdown; charset=utf-8");
      expect(response.headers.get("content-disposition")).toMatch(/^inline; filename="report.md"/);
    }
    const download = await alice.call("GET", "/v1/threads/a/artifacts/report.md?download=true");
    expect(download.headers.get("content-disposition")).toMatch(/^attachment/);
    await download.text();
  });

  test("that a browser would run are downloads, under a policy that runs nothing", async () => {
    for (const name of ["page.html", "i.svg"]) {
      const response = await alice.call("GET", `/v1/threads/a/artifacts/${name}?download=false`);
      expect(response.headers.get("content-disposition")).toMatch(/^attachment/);
      expect(response.headers.get("content-security-policy")).toContain("sandbox");
      expect(response.headers.get("x-content-type-options")).toBe("nosniff");
      await response.text();
    }
  });

  test("come in ranges, and not again when nothing changed", async () => {
    const path = "/v1/threads/a/artifacts/sub/digits.txt";
    const part = await alice.call("GET", path, { headers: { range: "bytes=3-5" } });
    expect([part.status, await part.text(), part.headers.get("content-range")]).toEqual([206, "345", "bytes 3-5/10"]);
    const etag = part.headers.get("etag") ?? "";
    expect((await alice.call("GET", path, { headers: { "if-none-match": etag } })).status).toBe(304);
    const head = await alice.call("HEAD", path);
    expect(head.headers.get("content-length")).toBe("10");
    expect((await alice.call("GET", path, { headers: { range: "bytes=99-" } })).status).toBe(416);
  });

  test("elsewhere, or behind a link, are refused", async () => {
    const base = "/v1/threads/a/artifacts";
    expect(await rawStatus(`${base}/../../../etc/passwd`)).toBe(403);
    expect(await rawStatus(`${base}/%2e%2e/%2e%2e/etc/passwd`)).toBe(403);
    expect(await rawStatus(`${base}/mnt/user-data/outputs/../../../etc/passwd`)).toBe(403);
    await alice.ask(403, "GET", `${base}/link.txt`);
    await alice.ask(403, "GET", `${base}/out/hostname`);
    await alice.ask(404, "GET", `${base}/none.txt`);
    await alice.ask(422, "GET", `${base}/sub`);
    await alice.ask(400, "GET", "/api/threads/a/artifacts/etc/passwd");
    await alice.ask(400, "GET", "/api/threads/a/artifacts/mnt/user-data/outputs/sub");
  });

  test("are written over the version that was read, and over no other", async () => {
    const path = "/v1/threads/a/artifacts/written.txt";
    await alice.ask(422, "PUT", path, { body: "no precondition" });
    await alice.ask(200, "PUT", path, { body: "first", headers: { "if-none-match": "*" } });
    await alice.ask(412, "PUT", path, { body: "second", headers: { "if-none-match": "*" } });
    const etag = (await alice.call("HEAD", path)).headers.get("etag") ?? "";
    await alice.ask(200, "PUT", path, { body: "second", headers: { "if-match": etag } });
    await alice.ask(412, "PUT", path, { body: "third", headers: { "if-match": etag } });
    expect(await (await alice.call("GET", path)).text()).toBe("second");
    await alice.ask(422, "PUT", "/v1/threads/a/artifacts/mnt/user-data/workspace/x", {
      body: "x",
      headers: { "if-none-match": "*" },
    });
    await alice.ask(403, "PUT", "/v1/threads/a/artifacts/out/x", { body: "x", headers: { "if-none-match": "*" } });
  });

  test("are edited as DeerFlow's client does it", async () => {
    const path = "/api/threads/a/artifacts/mnt/user-data/outputs/report.md";
    const edit = (content: string, expected: string) => ({ json: { content, expected_sha256: text(expected) } });
    const reply = await alice.ask(200, "PUT", path, edit("# Changed", "# Report"));
    expect(reply).toEqual({ success: true, path: `${OUTPUTS}/report.md`, size: 9, sha256: text("# Changed") });
    const refused = await alice.ask<{ detail: string }>(412, "PUT", path, edit("# Again", "# Report"));
    expect(refused.detail).toBeTypeOf("string");
    await alice.ask(413, "PUT", path, edit("x".repeat(2 * 1024 * 1024 + 1), "# Changed"));
    await alice.ask(415, "PUT", path, edit("a\0b", "# Changed"));
    await alice.ask(415, "PUT", "/api/threads/a/artifacts/mnt/user-data/outputs/link.txt", edit("x", "y"));
    await alice.ask(415, "PUT", "/api/threads/a/artifacts/mnt/user-data/outputs/binary.txt", edit("x", "a\0b"));
    await alice.ask(404, "PUT", "/api/threads/a/artifacts/mnt/user-data/outputs/none.md", edit("x", "y"));
    const latin = Buffer.from([0x63, 0x61, 0x66, 0xe9]);
    const put = { body: latin, headers: { "if-none-match": "*" } };
    await alice.ask(200, "PUT", "/v1/threads/a/artifacts/latin.txt", put);
    const overLatin = { json: { content: "x", expected_sha256: createHash("sha256").update(latin).digest("hex") } };
    await alice.ask(415, "PUT", "/api/threads/a/artifacts/mnt/user-data/outputs/latin.txt", overLatin);
    await alice.ask(422, "PUT", path, { json: { content: "x" } });
    expect(await (await alice.call("GET", path)).text()).toBe("# Changed");
  });

  test("inside a skill archive are shown as files of their own", async () => {
    const skill = zipOf([
      ["review/SKILL.md", Buffer.from("# Review")],
      ["review/page.html", Buffer.from("<script>alert(1)</script>")],
      ["review/bomb.txt", Buffer.alloc(17 * 1024 * 1024)],
    ]);
    for (const [name, content] of [
      ["review.skill", skill],
      ["torn.skill", skill.subarray(0, skill.byteLength - 40)],
    ] as const)
      await alice.ask(200, "PUT", `/v1/threads/a/files/content?path=${OUTPUTS}/${name}`, { body: content });
    const base = "/api/threads/a/artifacts/mnt/user-data/outputs/review.skill";
    for (const member of ["SKILL.md", "review/SKILL.md"]) {
      const shown = await alice.call("GET", `${base}/${member}`);
      expect([shown.status, await shown.text()]).toEqual([200, "# Review"]);
      expect(shown.headers.get("cache-control")).toBe("private, max-age=300");
      expect(shown.headers.get("content-disposition")).toMatch(/^inline; filename="SKILL.md"/);
    }
    const part = await alice.call("GET", `${base}/SKILL.md`, { headers: { range: "bytes=2-4" } });
    expect([part.status, await part.text(), part.headers.get("content-range")]).toEqual([206, "Rev", "bytes 2-4/8"]);
    for (const range of ["bytes=99-", "bytes=0-1,3-4", "lines=1-2"])
      await alice.ask(416, "GET", `${base}/SKILL.md`, { headers: { range } });
    const page = await alice.call("GET", `${base}/page.html`);
    expect(page.headers.get("content-disposition")).toMatch(/^attachment/);
    await page.text();
    const missing = await alice.ask<{ detail: string }>(404, "GET", `${base}/none.md`);
    expect(missing.detail).toBe("File 'none.md' not found in skill archive");
    await alice.ask(413, "GET", `${base}/bomb.txt`);
    await alice.ask(415, "GET", "/api/threads/a/artifacts/mnt/user-data/outputs/torn.skill/SKILL.md");
    const edit = { json: { content: "x", expected_sha256: text("# Review") } };
    await alice.ask(415, "PUT", `${base}/SKILL.md`, edit);
    await alice.ask(415, "PUT", base, edit);
    const whole = await alice.call("GET", base);
    expect(Buffer.from(await whole.arrayBuffer()).equals(skill)).toBe(true);
  });
});

/** A ZIP archive, deflated. */
function zipOf(files: readonly (readonly [string, Buffer])[]): Buffer {
  const locals: Buffer[] = [];
  const entries: Buffer[] = [];
  let at = 0;
  for (const [name, content] of files) {
    const packed = deflateRawSync(content);
    const common = Buffer.alloc(22);
    common.writeUInt16LE(8, 4);
    common.writeUInt32LE(crc32(content), 10);
    common.writeUInt32LE(packed.byteLength, 14);
    common.writeUInt32LE(content.byteLength, 18);
    const lengths = Buffer.alloc(4);
    lengths.writeUInt16LE(Buffer.byteLength(name), 0);
    const place = Buffer.alloc(14);
    place.writeUInt32LE(at, 10);
    const local = Buffer.concat([Buffer.from("PK\x03\x04"), common, lengths, Buffer.from(name), packed]);
    entries.push(Buffer.concat([Buffer.from("PK\x01\x02\0\0"), common, lengths, place, Buffer.from(name)]));
    locals.push(local);
    at += local.byteLength;
  }
  const directory = Buffer.concat(entries);
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06");
  end.writeUInt16LE(files.length, 8);
  end.writeUInt16LE(files.length, 10);
  end.writeUInt32LE(directory.byteLength, 12);
  end.writeUInt32LE(at, 16);
  return Buffer.concat([...locals, directory, end]);
}
