/** Uploads: limits while streaming, names, replacement, conversion; and under DeerFlow's roof. */

import { request as httpRequest } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemWorld } from "../../src/world/system-world.ts";
import type { World } from "../../src/world/world.ts";
import { openDocumentText, pdf, wordBomb, wordDocument, workbook } from "./support/documents.ts";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;
const UPLOADS = "/mnt/user-data/uploads";

interface Reply {
  success: boolean;
  files: Record<string, string | number>[];
  message: string;
  skippedFiles: string[];
}

beforeAll(async () => {
  stage = await openStage({
    settings: {
      uploads: {
        maxFiles: 3,
        maxFileBytes: 100_000,
        maxTotalBytes: 150_000,
        conversionMaxUncompressedBytes: 1_000_000,
      },
    },
  });
  alice = await stage.user("alice");
});
afterAll(() => stage.done());

function form(files: readonly (readonly [name: string, content: string | Buffer])[]): FormData {
  const data = new FormData();
  for (const [name, content] of files) data.append("files", new Blob([content as never]), name);
  return data;
}

async function shell(thread: string, command: string): Promise<string> {
  const { stdout } = await alice.ask<{ stdout: string }>(200, "POST", `/v1/threads/${thread}/exec`, {
    json: { command },
  });
  return stdout;
}

describe("uploads", () => {
  test("arrive, are listed, replaced and removed", async () => {
    const reply = await alice.ask<Reply>(200, "POST", "/v1/threads/u/uploads", { body: form([["a b.txt", "one"]]) });
    expect(reply).toEqual({
      success: true,
      files: [
        {
          filename: "a b.txt",
          sizeBytes: 3,
          path: `${UPLOADS}/a b.txt`,
          artifactUrl: "/v1/threads/u/artifacts/mnt/user-data/uploads/a%20b.txt",
        },
      ],
      message: "Successfully uploaded 1 file(s)",
      skippedFiles: [],
    });
    expect(await (await alice.call("GET", String(reply.files[0]?.artifactUrl))).text()).toBe("one");
    await alice.ask(200, "POST", "/v1/threads/u/uploads", { body: form([["a b.txt", "two!"]]) });
    const list = await alice.ask<{ files: Record<string, unknown>[]; count: number }>(
      200,
      "GET",
      "/v1/threads/u/uploads",
    );
    expect(list.count).toBe(1);
    expect(list.files[0]).toMatchObject({ filename: "a b.txt", sizeBytes: 4, extension: ".txt" });
    expect(Math.abs(Number(list.files[0]?.modifiedAt) - Date.now())).toBeLessThan(3_600_000);
    await alice.ask(200, "DELETE", "/v1/threads/u/uploads/a%20b.txt");
    await alice.ask(404, "DELETE", "/v1/threads/u/uploads/a%20b.txt");
    await alice.ask(422, "DELETE", "/v1/threads/u/uploads/..%2Fx");
  });

  test("with one name in one request are renamed", async () => {
    const body = form([
      ["x.tar.gz", "1"],
      ["x.tar.gz", "2"],
      ["dir/../x.tar.gz", "3"],
    ]);
    const { files } = await alice.ask<Reply>(200, "POST", "/v1/threads/dup/uploads", { body });
    expect(files.map(({ filename, originalFilename }) => [filename, originalFilename])).toEqual([
      ["x.tar.gz", undefined],
      ["x.tar_1.gz", "x.tar.gz"],
      ["x.tar_2.gz", "x.tar.gz"],
    ]);
    expect(await shell("dup", `cat ${UPLOADS}/x.tar.gz ${UPLOADS}/x.tar_1.gz ${UPLOADS}/x.tar_2.gz`)).toBe("123");
  });

  test("beyond a limit are refused, and leave what was there", async () => {
    await alice.ask(200, "POST", "/v1/threads/limit/uploads", { body: form([["kept", "kept"]]) });
    const refused = [
      form([
        ["a", "1"],
        ["b", "2"],
        ["c", "3"],
        ["d", "4"],
      ]),
      form([["kept", "x".repeat(100_001)]]),
      form([
        ["kept", "x".repeat(90_000)],
        ["more", "x".repeat(90_000)],
      ]),
    ];
    const codes: string[] = [];
    for (const body of refused) {
      const { error } = await alice.ask<{ error: { code: string } }>(413, "POST", "/v1/threads/limit/uploads", {
        body,
      });
      codes.push(error.code);
    }
    expect(codes).toEqual(["too_many_files", "payload_too_large", "payload_too_large"]);
    await alice.ask(422, "POST", "/v1/threads/limit/uploads", { body: form([]) });
    await alice.ask(415, "POST", "/v1/threads/limit/uploads", { json: {} });
    expect(await shell("limit", `ls -A ${UPLOADS}; cat ${UPLOADS}/kept`)).toBe("kept\nkept");
  });

  test("do not follow what an agent has put in their way", async () => {
    await shell("link", `echo mine > secret; ln -s ../workspace/secret ${UPLOADS}/link; mkdir ${UPLOADS}/dir`);
    const reply = await alice.ask<Reply>(200, "POST", "/v1/threads/link/uploads", {
      body: form([
        ["link", "evil"],
        ["dir", "evil"],
        ["fine", "fine"],
      ]),
    });
    expect(reply).toMatchObject({ success: false, skippedFiles: ["link", "dir"] });
    expect(reply.files.map(({ filename }) => filename)).toEqual(["fine"]);
    expect(await shell("link", `cat secret; ls -A ${UPLOADS}`)).toBe("mine\ndir\nfine\nlink\n");
  });

  test("that are cut off leave nothing", async () => {
    await alice.ask(200, "POST", "/v1/threads/cut/uploads", { body: form([["kept", "kept"]]) });
    const { port, hostname, host } = new URL(stage.gateway.url);
    const headers = { host, authorization: `Bearer ${alice.key}`, "content-type": "multipart/form-data; boundary=b" };
    await new Promise<void>((resolve) => {
      const sent = httpRequest({ hostname, port, method: "POST", path: "/v1/threads/cut/uploads", headers });
      sent.on("error", () => resolve());
      sent.write('--b\r\nContent-Disposition: form-data; name="files"; filename="kept"\r\n\r\nhalf');
      setTimeout(() => sent.destroy(), 200);
    });
    await expect.poll(() => shell("cut", `ls -A ${UPLOADS}; cat ${UPLOADS}/kept`)).toBe("kept\nkept");
    await expect
      .poll(async () => (await stage.fleet.list()).find(({ thread }) => thread === "cut")?.state)
      .toBe("parked");
  });

  test("never park a sandbox that is in use", async () => {
    const { leaseId, sandboxId } = await alice.ask(201, "POST", "/v1/threads/both/leases");
    await alice.ask(413, "POST", "/v1/threads/both/uploads", { body: form([["big", "x".repeat(100_001)]]) });
    await alice.ask(200, "POST", "/v1/threads/both/uploads", { body: form([["small", "x"]]) });
    expect(await stage.operator.ask(200, "GET", `/v1/sandboxes/${sandboxId}`)).toMatchObject({ state: "leased" });
    await alice.ask(204, "DELETE", `/v1/leases/${leaseId}`);
  });
});

test("what a killed gateway has left goes with an upload a day later, and a younger one stays", async () => {
  const system = systemWorld();
  const clock = { aheadMs: 0 };
  const world: World = new Proxy(system, {
    get(target, name) {
      if (name === "wallMs") return () => system.wallMs() + clock.aheadMs;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const one = await openStage({ engineWorld: world });
  try {
    const bob = await one.user("bob");
    const staged = `${UPLOADS}/.upload-0123456789abcdef.part`;
    const run = (command: string) =>
      bob.ask<{ stdout: string }>(200, "POST", "/v1/threads/u/exec", { json: { command } });
    const upload = (name: string) => bob.ask(200, "POST", "/v1/threads/u/uploads", { body: form([[name, "content"]]) });
    await upload("a.txt");
    await run(`echo left > ${staged}`);
    await upload("b.txt");
    expect((await run(`cat ${staged}`)).stdout).toBe("left\n");
    clock.aheadMs = 25 * 3_600_000;
    await upload("c.txt");
    expect((await run(`cat ${staged} || echo gone`)).stdout).toBe("gone\n");
    for (const name of ["a.txt", "b.txt", "c.txt"])
      expect((await run(`cat ${UPLOADS}/${name}`)).stdout).toBe("content");
  } finally {
    await one.done();
  }
});

describe("conversion", () => {
  const convert = async (name: string, content: Buffer) => {
    const { files } = await alice.ask<Reply>(200, "POST", "/v1/threads/doc/uploads?convert=true", {
      body: form([[name, content]]),
    });
    const [file] = files;
    const text =
      file?.markdownArtifactUrl && (await (await alice.call("GET", String(file.markdownArtifactUrl))).text());
    return { file, text };
  };

  test("makes Markdown of documents", async () => {
    expect((await convert("letter.docx", wordDocument(["First words", "Second words"]))).text).toContain(
      "Second words",
    );
    expect((await convert("text.odt", openDocumentText("Open words"))).text).toContain("Open words");
    expect((await convert("page.pdf", pdf("Portable words"))).text).toContain("Portable words");
    const table = await convert("fruit.xlsx", workbook());
    expect(table.text).toContain("| apple\\|pear | 2026-01-02 |");
    expect(table.file).toMatchObject({ markdownFilename: "fruit.md", markdownPath: `${UPLOADS}/fruit.md` });
  }, 60_000);

  test("never replaces a file that is there, and goes with its document", async () => {
    await alice.ask(200, "POST", "/v1/threads/doc/uploads", { body: form([["notes.md", "my own"]]) });
    const { file } = await convert("notes.docx", wordDocument(["converted"]));
    expect(file?.markdownFilename).toBe("notes_1.md");
    expect(await shell("doc", `cat ${UPLOADS}/notes.md`)).toBe("my own");
    await alice.ask(200, "DELETE", "/v1/threads/doc/uploads/letter.docx");
    expect(await shell("doc", `ls ${UPLOADS}`)).not.toContain("letter");
  }, 60_000);

  test("refuses a bomb, a fake and a format of the past, and says so", async () => {
    const bomb = wordBomb(50_000_000);
    expect(bomb.byteLength).toBeLessThan(100_000);
    for (const [name, content] of [
      ["bomb.docx", bomb],
      ["fake.pdf", Buffer.from("not a pdf")],
      ["old.doc", Buffer.from("x")],
    ] as const) {
      const { file } = await convert(name, content);
      expect(file?.conversionError).toBeTypeOf("string");
      expect(file?.markdownFilename).toBeUndefined();
    }
  }, 60_000);
});

describe("under DeerFlow's roof", () => {
  test("the Markdown of a document has DeerFlow's names", async () => {
    const body = form([["letter.docx", wordDocument(["Words"])]]);
    const { files } = await alice.ask<Reply>(200, "POST", "/api/threads/m/uploads?convert=true", { body });
    expect(files[0]).toMatchObject({
      markdown_file: "letter.md",
      markdown_path: `${UPLOADS}/letter.md`,
      markdown_virtual_path: `${UPLOADS}/letter.md`,
      markdown_artifact_url: "/api/threads/m/artifacts/mnt/user-data/uploads/letter.md",
    });
  }, 60_000);

  test("shapes and codes are DeerFlow's", async () => {
    const reply = await alice.ask<Reply>(200, "POST", "/api/threads/d/uploads", { body: form([["a.txt", "one"]]) });
    expect(reply).toEqual({
      success: true,
      files: [
        {
          filename: "a.txt",
          size: 3,
          path: `${UPLOADS}/a.txt`,
          virtual_path: `${UPLOADS}/a.txt`,
          artifact_url: "/api/threads/d/artifacts/mnt/user-data/uploads/a.txt",
        },
      ],
      message: "Successfully uploaded 1 file(s)",
      skipped_files: [],
    });
    expect(await alice.ask(200, "GET", "/api/threads/d/uploads/limits")).toEqual({
      max_files: 3,
      max_file_size: 100_000,
      max_total_size: 150_000,
    });
    const list = await alice.ask<{ files: Record<string, number>[] }>(200, "GET", "/api/threads/d/uploads/list");
    expect(list).toMatchObject({ count: 1, files: [{ filename: "a.txt", size: 3, extension: ".txt" }] });
    expect(Math.abs(Number(list.files[0]?.modified) - Date.now() / 1_000)).toBeLessThan(3_600);
    const many = form([
      ["a", "1"],
      ["b", "2"],
      ["c", "3"],
      ["d", "4"],
    ]);
    const refused = await alice.ask<{ detail: string }>(413, "POST", "/api/threads/d/uploads", { body: many });
    expect(refused.detail).toBe("Too many files: maximum is 3");
    const large = form([["big.bin", "x".repeat(100_001)]]);
    const tooLarge = await alice.ask<{ detail: string }>(413, "POST", "/api/threads/d/uploads", { body: large });
    expect(tooLarge.detail).toBe("File too large: big.bin");
    await alice.ask(400, "POST", "/api/threads/d/uploads", { body: form([]) });
    await alice.ask(422, "POST", "/api/threads/d/uploads?convert=perhaps", { body: form([["b.txt", "two"]]) });
    const named = (...names: string[]) => form(names.map((name) => [name, "x"] as [string, string]));
    const passedOver = await alice.ask<Reply>(200, "POST", "/api/threads/d/uploads", {
      body: named("..", "with\\backslash", "fine"),
    });
    expect(passedOver).toMatchObject({ success: true, skipped_files: [] });
    expect(passedOver.files.map(({ filename }) => filename)).toEqual(["fine"]);
    // Our API names the omitted files.
    const ours = await alice.ask<Reply>(200, "POST", "/v1/threads/d/uploads", { body: named("..", "fine") });
    expect(ours).toMatchObject({ success: false, skippedFiles: [".."] });
    await alice.ask(422, "POST", "/api/threads/a%2Fb/uploads", { body: named("fine") });
    const none = await alice.ask<Reply>(200, "POST", "/api/threads/d/uploads", { body: named("..") });
    expect(none).toMatchObject({ success: true, files: [] });
    await alice.ask(422, "POST", "/v1/threads/d/uploads", { body: named("..") });
    expect(await alice.ask(200, "DELETE", "/api/threads/d/uploads/a.txt")).toMatchObject({ success: true });
    await alice.ask(404, "DELETE", "/api/threads/d/uploads/a.txt");
    expect(await alice.ask(200, "GET", "/v1/uploads/limits")).toEqual({
      maxFiles: 3,
      maxFileBytes: 100_000,
      maxTotalBytes: 150_000,
    });
  });
});
