/** The Feishu channel through the real SDK, against a stand-in of the platform on the loopback. */

import { describe, expect, test } from "vitest";
import { APP_SECRET, sealed, waitFor } from "./feishu-platform.ts";
import { BATCH_MS, type EventOptions, event, openScene, Patience, post, stored } from "./feishu-scene.ts";

describe("messages over the long connection", () => {
  test("text arrives once, is acknowledged at once, and is answered; no sandbox is started for it", async () => {
    await using scene = await openScene();
    await scene.platform.push(event("text", { text: "hello" }, { eventId: "ev_same", id: "om_same" }), 3);
    await scene.platform.push(event("text", { text: "hello" }, { eventId: "ev_other", id: "om_same" }));
    await scene.platform.push(event("text", { text: "I am a bot" }, { senderType: "app" }));
    await scene.platform.push(event("sticker", { file_key: "x" }));
    await waitFor(() => scene.platform.replies.length > 0);
    await scene.channel.stop();
    expect(scene.messages.map(({ text }) => text)).toEqual(["hello"]);
    expect(scene.platform.replies).toEqual([{ messageId: "om_same", text: "got: hello", uuid: expect.any(String) }]);
    expect([...scene.platform.acknowledged.values()]).toEqual([200, 200, 200, 200, 200, 200]);
    expect(await scene.fleet.list()).toEqual([]);
  });

  test("files dropped one after the other are one message, each fetched with its own message", async () => {
    const patience = new Patience();
    await using scene = await openScene({ world: patience.world });
    scene.platform.files.set("om_a/key_a", stored("first", { name: "报告 1.pdf" }));
    scene.platform.files.set("om_b/key_b", stored("second"));
    scene.platform.files.set("om_c/key_c", stored("third"));
    await scene.platform.push(event("file", { file_key: "key_a", file_name: "报告 1.pdf" }, { id: "om_a" }));
    await scene.platform.push(event("image", { image_key: "key_b" }, { id: "om_b" }));
    await scene.platform.push(event("file", { file_key: "key_c", file_name: "报告 1.pdf" }, { id: "om_c" }));
    await scene.platform.push(
      event("file", { file_key: "key_other", file_name: "x" }, { id: "om_d", sender: "ou_bob" }),
    );
    // One for each sender.
    expect(patience.end(BATCH_MS)).toBe(2);
    await waitFor(() => scene.platform.replies.length === 2);
    const mine = scene.messages.find(({ files }) => files.length === 3)!;
    const root = "/mnt/user-data/uploads";
    expect(mine.text).toBe(`${root}/报告 1.pdf\n${root}/feishu_keyb.png\n${root}/报告 1_1.pdf`);
    expect(await scene.uploads(mine)).toEqual({
      "报告 1.pdf": "first",
      "feishu_keyb.png": "second",
      "报告 1_1.pdf": "third",
    });
    expect(scene.platform.replies.find(({ messageId }) => messageId === "om_a")?.text).toBe(`got: ${mine.text}`);
    // The file is not in the requested message.
    expect(scene.messages.find(({ files }) => files.length === 1)?.text).toBe(
      "Failed to obtain the [file]: it could not be downloaded",
    );
  });

  test("a text ends the batch before it, and replies and late files are by themselves", async () => {
    const patience = new Patience();
    await using scene = await openScene({ world: patience.world });
    for (const id of ["om_1x", "om_2x", "om_3x"]) scene.platform.files.set(`${id}/k`, stored(id));
    await scene.platform.push(event("file", { file_key: "k", file_name: "a" }, { id: "om_1x" }));
    await scene.platform.push(event("text", { text: "what is this?" }));
    await scene.platform.push(event("file", { file_key: "k", file_name: "b" }, { id: "om_2x", root: "om_1x" }));
    await scene.platform.push(event("file", { file_key: "k", file_name: "c" }, { id: "om_3x" }));
    expect(patience.end(BATCH_MS)).toBe(1);
    await waitFor(() => scene.messages.length === 4);
    expect(scene.messages.map(({ text }) => text)).toEqual([
      "/mnt/user-data/uploads/a",
      "what is this?",
      "/mnt/user-data/uploads/b",
      "/mnt/user-data/uploads/c",
    ]);
  });

  test("rich text: several files in order, a failure among them", async () => {
    await using scene = await openScene();
    scene.platform.files.set("om_p/img_1", stored("picture"));
    scene.platform.files.set("om_p/file_1", stored("movie", { name: "clip.mp4" }));
    const paragraph = [
      { tag: "text", text: "see " },
      { tag: "img", image_key: "img_1" },
      { tag: "text", text: " and " },
      { tag: "img", image_key: "img_missing" },
      { tag: "a", text: "link", href: "https://example.test" },
    ];
    const post = {
      zh_cn: { title: "Title", content: [paragraph, [{ tag: "media", file_key: "file_1", image_key: "img_1" }]] },
    };
    await scene.platform.push(event("post", post, { id: "om_p" }));
    await waitFor(() => scene.messages.length === 1);
    expect(scene.messages[0]?.text).toBe(
      "Title\nsee /mnt/user-data/uploads/feishu_img1.png and Failed to obtain the [image]: it could not be downloadedlink (https://example.test)\n/mnt/user-data/uploads/clip.mp4",
    );
    expect(await scene.uploads(scene.messages[0]!)).toEqual({ "feishu_img1.png": "picture", "clip.mp4": "movie" });
  });

  test("the connection comes back by itself", async () => {
    await using scene = await openScene();
    scene.platform.dropConnection();
    await scene.platform.connected();
    await scene.platform.push(event("text", { text: "still there?" }));
    await waitFor(() => scene.messages.length === 1);
  });
});

describe("the platform in trouble", () => {
  test("an expired token is replaced, rate limits and errors are waited out", async () => {
    await using scene = await openScene();
    scene.platform.files.set("om_r/k", stored("content"));
    await scene.platform.push(event("text", { text: "warm up" }));
    await waitFor(() => scene.platform.replies.length === 1);
    scene.platform.expireToken();
    scene.platform.refusals.push("rate-limit", "server-error");
    await scene.platform.push(event("file", { file_key: "k", file_name: "f" }, { id: "om_r" }));
    await waitFor(() => scene.platform.replies.length === 2);
    expect(scene.messages[1]?.text).toBe("/mnt/user-data/uploads/f");
    scene.platform.refusals.push("rate-limit");
    scene.platform.expireToken();
    await scene.platform.push(event("text", { text: "again" }));
    await waitFor(() => scene.platform.replies.length === 3);
    expect(scene.platform.tokensIssued).toBe(3);
    expect(scene.errors).toEqual([]);
  });

  test("a broken download is fetched again, and one that stays broken leaves nothing", async () => {
    await using scene = await openScene();
    scene.platform.files.set("om_ok/k", stored("x".repeat(100_000), { broken: 1 }));
    scene.platform.files.set("om_bad/k", stored("y".repeat(100_000), { broken: 99 }));
    await scene.platform.push(event("file", { file_key: "k", file_name: "ok" }, { id: "om_ok" }));
    await scene.platform.push(event("file", { file_key: "k", file_name: "bad" }, { id: "om_bad" }));
    await waitFor(() => scene.messages.length === 1);
    expect(scene.messages[0]?.text).toBe(
      "/mnt/user-data/uploads/ok\nFailed to obtain the [file]: it could not be downloaded",
    );
    expect(Object.keys(await scene.uploads(scene.messages[0]!))).toEqual(["ok"]);
  });

  test("too large a body is refused, announced or not; too many files too", async () => {
    await using scene = await openScene({ maxFileBytes: 1_000, maxFiles: 3 });
    scene.platform.files.set("om_f/a", stored("x".repeat(1_001)));
    scene.platform.files.set("om_f/b", stored("x".repeat(1_001), { chunked: true }));
    scene.platform.files.set("om_f/c", stored("x".repeat(1_000)));
    scene.platform.files.set("om_f/d", stored("x"));
    const content = [["a", "b", "c", "d"].map((key) => ({ tag: "file", file_key: key, file_name: key }))];
    await scene.platform.push(event("post", { title: "", content }, { id: "om_f" }));
    await waitFor(() => scene.messages.length === 1);
    expect(scene.messages[0]?.files.map(({ path, sizeBytes, problem }) => [path, sizeBytes, problem])).toEqual([
      [null, null, "it is larger than 1000 bytes"],
      [null, null, "it is larger than 1000 bytes"],
      ["/mnt/user-data/uploads/c", 1_000, null],
      [null, null, "a message may have at most 3 files"],
    ]);
    expect(Object.keys(await scene.uploads(scene.messages[0]!))).toEqual(["c"]);
  });

  test("a handler that fails is reported to the sender, and the next message is handled", async () => {
    let failing = true;
    await using scene = await openScene({
      onMessage: async ({ reply }) => {
        if (failing) throw new Error("the agent is broken");
        await reply("fine");
      },
    });
    await scene.platform.push(event("text", { text: "one" }));
    await waitFor(() => scene.platform.replies.length === 1);
    failing = false;
    await scene.platform.push(event("text", { text: "two" }));
    await waitFor(() => scene.platform.replies.length === 2);
    expect(scene.platform.replies.map(({ text }) => text)).toEqual([
      "Something went wrong with this message. Please try again.",
      "fine",
    ]);
    expect(scene.errors).toHaveLength(1);
    expect(JSON.stringify(scene.errors)).not.toContain(APP_SECRET);
  });

  test("a wrong secret fails the start, with an error that does not carry it", async () => {
    const failure = await openScene({ appSecret: "wrong-secret-000" }).then(
      () => null,
      (error: unknown) => error,
    );
    expect(failure).toBeInstanceOf(Error);
    expect(String(failure)).not.toContain("wrong-secret-000");
  });
});

describe("files are safe", () => {
  test("names cannot leave the uploads, links are not followed, nothing is overwritten", async () => {
    await using scene = await openScene();
    await scene.platform.push(event("text", { text: "first" }));
    await waitFor(() => scene.messages.length === 1);
    const { user, thread } = scene.messages[0]!;
    {
      await using lease = await scene.fleet.acquire({ user, thread });
      await lease.sandbox.exec(
        "cd /mnt/user-data/uploads; echo mine > report.txt; ln -s /mnt/user-data/workspace/target trap.txt; ln -s /nowhere gone.txt",
      );
    }
    const names = [
      "../../etc/passwd",
      "report.txt",
      "trap.txt",
      "gone.txt",
      "..",
      ".bashrc",
      "a\u202Efdp.exe",
      `${"x".repeat(300)}.md`,
      "new\nline <b>.txt",
    ];
    for (const [index] of names.entries()) scene.platform.files.set(`om_n/k${index}`, stored(`file ${index}`));
    const content = [names.map((file_name, index) => ({ tag: "file", file_key: `k${index}`, file_name }))];
    await scene.platform.push(event("post", { title: "", content }, { id: "om_n" }));
    await waitFor(() => scene.messages.length === 2);
    expect(scene.messages[1]?.files.map(({ path }) => path?.slice(23))).toEqual([
      "passwd",
      "report_1.txt",
      "trap_1.txt",
      "gone_1.txt",
      "feishu_k4.bin",
      "_bashrc",
      "afdp.exe",
      `${"x".repeat(197)}.md`,
      "newline _b_.txt",
    ]);
    const uploads = await scene.uploads(scene.messages[1]!);
    expect(uploads["report.txt"]).toBe("mine\n");
    expect(uploads["trap.txt"]).toBe("symlink");
    await using lease = await scene.fleet.acquire({ user, thread });
    expect((await lease.sandbox.files.list("/mnt/user-data/workspace")).entries).toEqual([]);
  });

  test("senders, chats, topics and tenants are kept apart", async () => {
    await using scene = await openScene();
    const variants: EventOptions[] = [
      { sender: "ou_ann" },
      { sender: "ou_bob" },
      { sender: "ou_ann", tenant: "tenant-2" },
      { chat: "oc_2" },
      { chatType: "group", id: "om_topic" },
      { chatType: "group", root: "om_topic" },
      { chatType: "group" },
    ];
    for (const variant of variants) await scene.platform.push(event("text", { text: "hi" }, variant));
    await waitFor(() => scene.messages.length === variants.length);
    const keyOf = (index: number) => `${scene.messages[index]?.user}/${scene.messages[index]?.thread}`;
    for (const { user, thread } of scene.messages)
      for (const id of [user, thread]) expect(id).toMatch(/^feishu-[0-9a-f]{40}$/);
    expect(new Set(variants.map((_, index) => keyOf(index))).size).toBe(variants.length - 1);
    expect(keyOf(4)).toBe(keyOf(5));
  });

  test("a lease that cannot be had is a failure of the files, not of the message", async () => {
    await using scene = await openScene({ source: { acquire: () => Promise.reject(new Error("no room")) } });
    scene.platform.files.set("om_l/k", stored("x"));
    await scene.platform.push(event("file", { file_key: "k", file_name: "f" }, { id: "om_l" }));
    await waitFor(() => scene.platform.replies.length === 1);
    expect(scene.messages[0]?.text).toMatch(/^Failed to obtain the \[file\]/);
  });
});

describe("the webhook", () => {
  const ENCRYPT_KEY = "encrypt-key-0001";

  test("takes what is signed and sealed, once, and answers the platform's first question", async () => {
    await using scene = await openScene({ mode: "webhook", encryptKey: ENCRYPT_KEY, verificationToken: "v-token" });
    const question = sealed({ type: "url_verification", challenge: "c-123", token: "v-token" }, ENCRYPT_KEY);
    expect(await post(scene, question.body)).toEqual({ status: 200, body: '{"challenge":"c-123"}' });
    const message = sealed(event("text", { text: "by webhook" }), ENCRYPT_KEY);
    expect((await post(scene, message.body, message.headers)).status).toBe(200);
    expect((await post(scene, message.body, message.headers)).status).toBe(200);
    await waitFor(() => scene.platform.replies.length === 1);
    expect(scene.messages.map(({ text }) => text)).toEqual(["by webhook"]);
  });

  test("refuses what is not", async () => {
    await using scene = await openScene({ mode: "webhook", encryptKey: ENCRYPT_KEY, verificationToken: "v-token" });
    const good = sealed(event("text", { text: "forged" }), ENCRYPT_KEY);
    const other = sealed(event("text", { text: "forged" }), "another-key");
    const tampered = good.body.replace("encrypt", "encrypt ").replace("encrypt ", "encrypt");
    expect((await post(scene, good.body)).status).toBe(401);
    expect((await post(scene, other.body, other.headers)).status).toBe(401);
    expect((await post(scene, `${tampered} `, good.headers)).status).toBe(401);
    expect((await post(scene, JSON.stringify(event("text", { text: "plain" })))).status).toBe(401);
    expect((await post(scene, "not json")).status).toBe(401);
    expect((await post(scene, "x".repeat(2_000_000))).status).toBe(413);
    expect(scene.messages).toEqual([]);
  });

  test("with a token alone, the token decides; with neither it is not opened", async () => {
    await using scene = await openScene({ mode: "webhook", verificationToken: "v-token" });
    const good = event("text", { text: "right token" });
    const bad = { ...event("text", { text: "wrong" }), header: { ...good.header, event_id: "e9", token: "guess" } };
    expect((await post(scene, JSON.stringify(bad))).status).toBe(401);
    expect((await post(scene, JSON.stringify(good))).status).toBe(200);
    await waitFor(() => scene.messages.length === 1);
    await expect(openScene({ mode: "webhook" })).rejects.toMatchObject({ code: "invalid_request" });
    await expect(openScene({ appId: "cli_x" })).rejects.toMatchObject({ code: "invalid_request" });
  });
});
