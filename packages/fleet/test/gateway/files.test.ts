/** Files through the gateway: bytes, ranges, preconditions, listings, searches, changes. */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { richBackend } from "./support/rich-backend.ts";
import { sseEvents } from "./support/sse.ts";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;
const ROOT = "/mnt/user-data/workspace";
const content = (path: string, more = "") => `/v1/threads/f/files/content?path=${encodeURIComponent(path)}${more}`;

beforeAll(async () => {
  stage = await openStage({ settings: { fileMaxBytes: 1_000_000 }, enrich: richBackend });
  alice = await stage.user("alice");
});
afterAll(() => stage.done());

describe("content", () => {
  test("goes in and comes out as it was", async () => {
    const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, index) => index % 251));
    const stat = await alice.ask<{ sizeBytes: number; version: string }>(200, "PUT", content(`${ROOT}/a/bytes`), {
      body: bytes,
    });
    expect(stat.sizeBytes).toBe(bytes.byteLength);
    const response = await alice.call("GET", content(`${ROOT}/a/bytes`));
    expect(response.headers.get("etag")).toBe(`"${encodeURIComponent(stat.version)}"`);
    expect(response.headers.get("content-disposition")).toBe("attachment");
    expect(response.headers.get("x-content-type-options")).toBe("nosniff");
    expect(Buffer.from(await response.arrayBuffer()).equals(bytes)).toBe(true);
    const head = await alice.call("HEAD", content(`${ROOT}/a/bytes`));
    expect([head.status, head.headers.get("content-length")]).toEqual([200, "100000"]);
  });

  test("of a JSON type is bytes like any other", async () => {
    await alice.ask(200, "PUT", content(`${ROOT}/x.json`), {
      body: "{ not json",
      headers: { "content-type": "application/json" },
    });
    expect(await (await alice.call("GET", content(`${ROOT}/x.json`))).text()).toBe("{ not json");
  });

  test("may be empty, and without a body", async () => {
    await alice.ask(200, "PUT", content(`${ROOT}/empty`));
    const response = await alice.call("GET", content(`${ROOT}/empty`));
    expect([response.status, await response.text()]).toEqual([200, ""]);
  });

  test("comes in ranges", async () => {
    await alice.ask(200, "PUT", content(`${ROOT}/range`), { body: "0123456789" });
    const range = async (header: string) => {
      const response = await alice.call("GET", content(`${ROOT}/range`), { headers: { range: header } });
      return [response.status, response.headers.get("content-range"), response.ok ? await response.text() : null];
    };
    expect(await range("bytes=2-4")).toEqual([206, "bytes 2-4/10", "234"]);
    expect(await range("bytes=7-")).toEqual([206, "bytes 7-9/10", "789"]);
    expect(await range("bytes=-3")).toEqual([206, "bytes 7-9/10", "789"]);
    expect(await range("bytes=5-999")).toEqual([206, "bytes 5-9/10", "56789"]);
    expect(await range("bytes=10-")).toEqual([416, "bytes */10", null]);
    expect(await range("bytes=nonsense")).toEqual([200, null, "0123456789"]);
  });

  test("is written and read under preconditions", async () => {
    const path = content(`${ROOT}/versions`);
    await alice.ask(200, "PUT", path, { body: "1", headers: { "if-none-match": "*" } });
    await alice.ask(412, "PUT", path, { body: "2", headers: { "if-none-match": "*" } });
    const etag = (await alice.call("HEAD", path)).headers.get("etag") ?? "";
    expect((await alice.call("GET", path, { headers: { "if-none-match": etag } })).status).toBe(304);
    await alice.ask(200, "PUT", path, { body: "2", headers: { "if-match": etag } });
    const { error } = await alice.ask<{ error: { code: string } }>(412, "PUT", path, {
      body: "3",
      headers: { "if-match": etag },
    });
    expect(error.code).toBe("file_changed");
    expect((await alice.call("GET", path, { headers: { "if-match": etag } })).status).toBe(412);
    expect(await (await alice.call("GET", path)).text()).toBe("2");
    await alice.ask(412, "DELETE", path, { headers: { "if-match": etag } });
    await alice.ask(204, "DELETE", path);
    await alice.ask(404, "GET", path);
  });

  test("too large leaves what was there", async () => {
    const path = content(`${ROOT}/limited`);
    await alice.ask(200, "PUT", path, { body: "small" });
    await alice.ask(413, "PUT", path, { body: Buffer.alloc(1_000_001) });
    async function* chunks() {
      for (let count = 0; count < 20; count += 1) yield Buffer.alloc(100_000);
    }
    const streamed = await alice.call("PUT", path, { body: chunks() as never }).catch(() => null);
    if (streamed !== null) expect(streamed.status).toBe(413);
    expect(await (await alice.call("GET", path)).text()).toBe("small");
    const listing = await alice.ask<{ entries: { path: string }[] }>(
      200,
      "GET",
      `/v1/threads/f/files/list?path=${ROOT}`,
    );
    expect(listing.entries.filter(({ path: name }) => name.includes("part"))).toEqual([]);
  });

  test("is appended to", async () => {
    const append = `/v1/threads/f/files/append?path=${ROOT}/log`;
    await alice.ask(200, "POST", append, { body: "one\n" });
    await alice.ask(200, "POST", append, { body: "two\n" });
    const text = await alice.call("GET", `/v1/threads/f/files/text?path=${ROOT}/log&startLine=2`);
    expect(await text.text()).toBe("two");
  });

  test("of a directory, a missing file or no path is an error with a code", async () => {
    const code = async (path: string) => {
      const response = await alice.call("GET", content(path));
      const { error } = (await response.json()) as { error: { code: string } };
      return [response.status, error.code];
    };
    expect(await code(ROOT)).toEqual([409, "is_a_directory"]);
    expect(await code(`${ROOT}/none`)).toEqual([404, "file_not_found"]);
    expect(await code("")).toEqual([422, "invalid_path"]);
    await alice.ask(200, "PUT", content("below/the-workspace"), { body: "text" });
    expect(await (await alice.call("GET", content(`${ROOT}/below/the-workspace`))).text()).toBe("text");
  });
});

describe("around content", () => {
  test("entries are listed, looked at, moved and removed", async () => {
    await alice.ask(204, "POST", "/v1/threads/f/files/mkdir", { json: { path: `${ROOT}/dir/inner` } });
    await alice.ask(200, "PUT", content(`${ROOT}/dir/inner/file`, "&mode=755"), { body: "text" });
    for (const mode of ["4755", "2755", "7777"])
      await alice.ask(422, "PUT", content(`${ROOT}/dir/inner/file`, `&mode=${mode}`), { body: "evil" });
    const { entries } = await alice.ask<{ entries: { path: string }[] }>(
      200,
      "GET",
      `/v1/threads/f/files/list?path=${ROOT}/dir&depth=2`,
    );
    expect(entries.map(({ path }) => path)).toEqual([`${ROOT}/dir/inner`, `${ROOT}/dir/inner/file`]);
    await alice.ask(204, "POST", "/v1/threads/f/files/rename", {
      json: { from: `${ROOT}/dir/inner/file`, to: `${ROOT}/dir/moved` },
    });
    const stat = await alice.ask<{ mode: number }>(200, "GET", `/v1/threads/f/files/stat?path=${ROOT}/dir/moved`);
    expect(stat.mode & 0o777).toBe(0o755);
    await alice.ask(409, "DELETE", content(`${ROOT}/dir`));
    await alice.ask(204, "DELETE", content(`${ROOT}/dir`, "&recursive=true"));
  });

  test("patterns are found in names and in text", async () => {
    await alice.ask(200, "PUT", content(`${ROOT}/search/one.ts`), { body: "alpha\nbeta\n" });
    const globbed = await alice.ask(200, "POST", "/v1/threads/f/files/glob", {
      json: { path: `${ROOT}/search`, pattern: "*.ts" },
    });
    expect(globbed).toEqual({ paths: [`${ROOT}/search/one.ts`], truncated: false });
    const found = await alice.ask(200, "POST", "/v1/threads/f/files/grep", {
      json: { path: `${ROOT}/search`, pattern: "BET" },
    });
    expect(found).toEqual({
      matches: [{ path: `${ROOT}/search/one.ts`, lineNumber: 2, line: "beta" }],
      ...{ truncated: false, skippedFiles: 0, skippedLines: 0 },
    });
    await alice.ask(422, "POST", "/v1/threads/f/files/grep", { json: { path: ROOT, pattern: "(" } });
  });

  test("changes are watched", async () => {
    await alice.ask(204, "POST", "/v1/threads/f/files/mkdir", { json: { path: `${ROOT}/watched` } });
    const stop = new AbortController();
    const response = await alice.call("GET", `/v1/threads/f/files/watch?path=${ROOT}/watched`, { signal: stop.signal });
    const seen: string[] = [];
    for await (const { event, data } of sseEvents(response)) {
      seen.push(`${event} ${data.path}`);
      if (event === "ready") await alice.ask(200, "PUT", content(`${ROOT}/watched/new`), { body: "x" });
      if (event === "created") break;
    }
    stop.abort();
    expect(seen.at(-1)).toBe(`created ${ROOT}/watched/new`);
    await alice.ask(404, "GET", `/v1/threads/f/files/watch?path=${ROOT}/nowhere`);
  });
});
