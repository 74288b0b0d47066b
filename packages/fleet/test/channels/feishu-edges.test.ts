/** The edges of the Feishu channel: odd messages, many files, a misbehaving platform and strangers. */

import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { describe, expect, test } from "vitest";
import { systemWorld } from "../../src/world/system-world.ts";
import { sealed, waitFor } from "./feishu-platform.ts";
import { BATCH_MS, event, openScene, Patience, post, stored } from "./feishu-scene.ts";

const UPLOADS = "/mnt/user-data/uploads";
const ENCRYPT_KEY = "encrypt-key-0001";
const ANSWER_MS = 30_000;
const STANDSTILL_MS = 60_000;

describe("placeholders", () => {
  test("typed text is no placeholder, and files keep their places", async () => {
    await using scene = await openScene();
    scene.platform.files.set("om_p/img_1", stored("picture"));
    scene.platform.files.set("om_p/key_1", stored("table"));
    const paragraph = [
      { tag: "text", text: "I write [image] and [file] \uFFFC here: " },
      { tag: "img", image_key: "img_1" },
      { tag: "text", text: ", " },
      { tag: "file", file_key: "key_1", file_name: "[image].csv" },
    ];
    await scene.platform.push(event("post", { title: "[file]", content: [paragraph] }, { id: "om_p" }));
    await scene.platform.push(event("text", { text: "[file]" }));
    await waitFor(() => scene.messages.length === 2);
    expect(scene.messages.map(({ text }) => text)).toEqual([
      `[file]\nI write [image] and [file]  here: ${UPLOADS}/feishu_img1.png, ${UPLOADS}/[image].csv`,
      "[file]",
    ]);
  });

  test("an event that comes in several frames is one message", async () => {
    await using scene = await openScene();
    await scene.platform.push(event("text", { text: "日本語".repeat(500) }), 1, 3);
    await waitFor(() => scene.messages.length === 1);
    expect(scene.messages[0]?.text).toBe("日本語".repeat(500));
  });
});

describe("batches", () => {
  test("more files than a message may have are several messages, and none is refused", async () => {
    const patience = new Patience();
    await using scene = await openScene({ maxFiles: 2, world: patience.world });
    for (let n = 0; n < 3; n++) scene.platform.files.set(`om_m${n}/k`, stored(`file ${n}`));
    for (let n = 0; n < 3; n++)
      await scene.platform.push(event("file", { file_key: "k", file_name: `f${n}` }, { id: `om_m${n}` }));
    patience.end(BATCH_MS);
    await waitFor(() => scene.platform.replies.length === 2);
    expect(scene.messages.map(({ text }) => text)).toEqual([`${UPLOADS}/f0\n${UPLOADS}/f1`, `${UPLOADS}/f2`]);
    expect(scene.platform.replies.map(({ messageId }) => messageId)).toEqual(["om_m0", "om_m2"]);
  });

  test("files that come by webhook are put together as well, after three quarters of a second", async () => {
    const patience = new Patience();
    await using scene = await openScene({ mode: "webhook", encryptKey: ENCRYPT_KEY, world: patience.world });
    scene.platform.files.set("om_w1/k", stored("one"));
    scene.platform.files.set("om_w2/i", stored("two"));
    const drops = [
      event("file", { file_key: "k", file_name: "one.txt" }, { id: "om_w1" }),
      event("image", { image_key: "i" }, { id: "om_w2" }),
    ].map((dropped) => sealed(dropped, ENCRYPT_KEY));
    for (const { body, headers } of drops) expect((await post(scene, body, headers)).status).toBe(200);
    expect(scene.messages).toEqual([]);
    expect(patience.end(BATCH_MS)).toBe(1);
    await waitFor(() => scene.messages.length === 1);
    expect(scene.messages[0]?.text).toBe(`${UPLOADS}/one.txt\n${UPLOADS}/feishu_i.png`);
    expect(scene.platform.requests.filter((request) => request.includes("/resources/"))).toEqual([
      "GET /open-apis/im/v1/messages/om_w1/resources/k?type=file",
      "GET /open-apis/im/v1/messages/om_w2/resources/i?type=image",
    ]);
    await waitFor(() => scene.platform.replies.length === 1);
  });
});

describe("the platform", () => {
  test("a token is replaced when its time is over, before it is refused", async () => {
    let later = 0;
    const world = systemWorld();
    const shifted = Object.assign(Object.create(world) as typeof world, { wallMs: () => world.wallMs() + later });
    await using scene = await openScene({ world: shifted });
    await scene.platform.push(event("text", { text: "one" }));
    await waitFor(() => scene.platform.replies.length === 1);
    await scene.platform.push(event("text", { text: "two" }));
    await waitFor(() => scene.platform.replies.length === 2);
    expect([scene.platform.tokensIssued, scene.platform.tokensRefused]).toEqual([1, 0]);
    later = 7_200_000;
    await scene.platform.push(event("text", { text: "three" }));
    await waitFor(() => scene.platform.replies.length === 3);
    expect([scene.platform.tokensIssued, scene.platform.tokensRefused]).toEqual([2, 0]);
  });

  test("an endless rate limit fails the file and is reported to the sender; the answer waits it out", async () => {
    await using scene = await openScene();
    scene.platform.files.set("om_r/k", stored("content"));
    // Three attempts at the file, with four requests each; then some for the reply.
    scene.platform.refusals.push(...Array.from({ length: 14 }, () => "rate-limit" as const));
    await scene.platform.push(event("file", { file_key: "k", file_name: "f" }, { id: "om_r" }));
    await waitFor(() => scene.platform.replies.length === 1);
    expect(scene.platform.replies[0]?.text).toBe("got: Failed to obtain the [file]: it could not be downloaded");
    expect(scene.platform.refusals).toEqual([]);
    await waitFor(() => scene.leaseCount() === 0);
  });

  test("a download without a caller is ended", async () => {
    await using scene = await openScene({ maxFileBytes: 10 });
    scene.platform.files.set("om_big/k", stored("x".repeat(2_000_000), { stuck: true }));
    await scene.platform.push(event("file", { file_key: "k", file_name: "big" }, { id: "om_big" }));
    await waitFor(() => scene.platform.replies.length === 1);
    expect(scene.messages[0]?.text).toBe("Failed to obtain the [file]: it is larger than 10 bytes");
    await waitFor(() => scene.platform.downloadsEnded === 1);
  });

  test("an abort ends a download that hangs, and gives its lease back", async () => {
    await using scene = await openScene();
    scene.platform.files.set("om_h/k", stored("x".repeat(1_000), { stuck: true }));
    await scene.platform.push(event("file", { file_key: "k", file_name: "hangs" }, { id: "om_h" }));
    await waitFor(() => scene.leaseCount() === 1);
    await scene.channel.stop({ abort: true });
    await waitFor(() => scene.leaseCount() === 0 && scene.platform.downloadsEnded === 1);
    expect(scene.messages).toEqual([]);
  });

  test("a platform that is silent, and a download that stands still, are not waited for", async () => {
    const patience = new Patience();
    await using scene = await openScene({ world: patience.world });
    scene.platform.files.set("om_s/k", stored("x".repeat(1_000), { stuck: true }));
    scene.platform.files.set("om_q/k", stored("quiet"));
    scene.platform.refusals.push("silence");
    await scene.platform.push(event("file", { file_key: "k", file_name: "late" }, { id: "om_q", chat: "oc_q" }));
    patience.end(BATCH_MS);
    await waitFor(() => scene.platform.refusals.length === 0);
    patience.end(ANSWER_MS);
    await waitFor(() => scene.platform.replies.length === 1);
    await scene.platform.push(event("file", { file_key: "k", file_name: "stands" }, { id: "om_s", chat: "oc_s" }));
    patience.end(BATCH_MS);
    await waitFor(() => {
      patience.end(STANDSTILL_MS);
      return scene.platform.replies.length === 2;
    });
    expect(scene.messages.map(({ text }) => text)).toEqual([
      `${UPLOADS}/late`,
      "Failed to obtain the [file]: it could not be downloaded",
    ]);
    await waitFor(() => scene.platform.downloadsEnded === 3);
  });
});

describe("the long connection", () => {
  test("is made again after the SDK has given up on it, and not after a stop", async () => {
    await using scene = await openScene({}, (platform) => {
      platform.reconnectCount = 1;
    });
    scene.platform.isDown = true;
    scene.platform.dropConnection();
    await waitFor(() => scene.errors.length > 0, 20_000);
    scene.platform.isDown = false;
    await scene.platform.connected(20_000);
    await scene.platform.push(event("text", { text: "back" }));
    await waitFor(() => scene.messages.length === 1);
    scene.platform.isDown = true;
    scene.platform.dropConnection();
    await scene.channel.stop();
    const asked = scene.platform.requests.length;
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(scene.platform.requests.length).toBe(asked);
  });
});

describe("strangers at the webhook", () => {
  test("other methods are refused, and a challenge with the token is answered", async () => {
    await using scene = await openScene({ mode: "webhook", verificationToken: "v-token" });
    const question = { type: "url_verification", challenge: "c-9", token: "v-token" };
    expect(await post(scene, JSON.stringify(question))).toEqual({ status: 200, body: '{"challenge":"c-9"}' });
    expect((await post(scene, JSON.stringify({ ...question, token: "guess" }))).status).toBe(401);
    const server = createServer((request, response) => void scene.channel.handleWebhook(request, response));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    expect((await fetch(`http://127.0.0.1:${port}/`)).status).toBe(405);
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  test("one that hangs up in the middle disturbs no other", async () => {
    await using scene = await openScene({ mode: "webhook", verificationToken: "v-token" });
    let arrived = 0;
    const server = createServer((request, response) => {
      arrived += 1;
      void scene.channel.handleWebhook(request, response);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const socket = connect(port, "127.0.0.1");
    socket.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{"half":');
    await waitFor(() => arrived === 1);
    socket.destroy();
    await waitFor(() => scene.errors.length === 1);
    expect((await post(scene, JSON.stringify(event("text", { text: "on" })))).status).toBe(200);
    await waitFor(() => scene.messages.length === 1);
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
});
