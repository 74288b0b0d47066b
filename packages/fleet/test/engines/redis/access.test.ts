/** Passwords, users with few rights, and TLS. */

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { inspect } from "node:util";
import { isSandlotError } from "@sandlot/contract";
import { afterEach, describe, expect, it } from "vitest";
import { PASSWORD_VARIABLE } from "../../../src/store/redis/secrets.ts";
import type { RedisTls } from "../../../src/store/redis/settings.ts";
import { freePort, type RedisProcess, reasonToSkip, settingsFor } from "./redis-process.ts";
import { RIGHTS } from "./rights.ts";
import { disposeLater, openServer, refusalOf, stageOn, startRedis } from "./stage.ts";
import { TcpProxy } from "./tcp-proxy.ts";

const PASSWORD = "correct horse/battery:staple@9";

afterEach(() => {
  delete process.env[PASSWORD_VARIABLE];
});

function passwordFile(redis: RedisProcess, text: string): string {
  const path = redis.file(`password-${Math.random()}`);
  writeFileSync(path, text, { mode: 0o600 });
  return path;
}

describe.skipIf(reasonToSkip() !== null)("redis with a password", () => {
  const withPassword = () => startRedis({ config: { requirepass: `"${PASSWORD}"` } });

  it("is opened with the password of a file, or of the environment", async () => {
    const redis = await withPassword();
    await openServer(redis.settings({ passwordFile: passwordFile(redis, `${PASSWORD}\n`) }));
    process.env[PASSWORD_VARIABLE] = PASSWORD;
    const server = await openServer(redis.settings());
    await (await stageOn(server)).write({ "record/a": "A" });
  });

  it("refuses a wrong or missing password, and the error does not show it", async () => {
    const redis = await withPassword();
    const proxy = await TcpProxy.to(redis.port);
    disposeLater(() => proxy.close());
    const topology = { kind: "standalone", endpoint: proxy.endpoint } as const;
    const wrong = redis.settings({ topology, passwordFile: passwordFile(redis, "wrong-secret") });
    for (const settings of [wrong, redis.settings({ topology })]) {
      const error = await refusalOf(settings);
      expect(isSandlotError(error, "store_unavailable")).toBe(true);
      expect(error.message).toContain("check store.user and store.passwordFile");
      expect(inspect(error, { depth: 20, showHidden: true })).not.toContain("wrong-secret");
    }
    // It is not tried again and again.
    expect(proxy.accepted).toBe(2);
  });

  it("shows no password that a server repeats in its answer", async () => {
    // As servers before version 6 answer HELLO.
    const echo = createServer((socket) => {
      socket.on("error", () => undefined);
      socket.on("data", (data) => {
        const words = data
          .toString()
          .split("\r\n")
          .filter((line) => line !== "" && !/^[*$]\d/.test(line));
        socket.write(
          `-ERR unknown command \`${words.shift()}\`, with args beginning with: ${words.join(", ")}\r\n`.repeat(3),
        );
      });
    });
    const port = await freePort();
    echo.listen(port, "127.0.0.1");
    disposeLater(async () => void echo.close());
    process.env[PASSWORD_VARIABLE] = PASSWORD;
    const error = await refusalOf(settingsFor({ host: "127.0.0.1", port }));
    expect(error.message).toContain("[password]");
    expect(inspect(error, { depth: 20, showHidden: true })).not.toContain(PASSWORD);
  });

  it("says which file cannot be read, or is empty", async () => {
    const redis = await withPassword();
    const missing = await refusalOf(redis.settings({ passwordFile: "/nonexistent/password" }));
    expect(missing.message).toContain("store.passwordFile: /nonexistent/password cannot be read (ENOENT)");
    const empty = await refusalOf(redis.settings({ passwordFile: passwordFile(redis, "\n") }));
    expect(empty.message).toContain("is empty");
  });

  it("takes a changed password with the next connection", async () => {
    const redis = await withPassword();
    const file = passwordFile(redis, PASSWORD);
    const server = await openServer(redis.settings({ passwordFile: file }));
    const stage = await stageOn(server);
    writeFileSync(file, "another");
    writeFileSync(redis.file("redis.conf"), "requirepass another\n", { flag: "a" });
    await redis.kill();
    await redis.start();
    await stage.until("it is connected again", () =>
      stage.row("record/a").then(
        () => true,
        () => false,
      ),
    );
  });
});

describe.skipIf(reasonToSkip() !== null)("redis with a user of few rights", () => {
  const rules = (rights: readonly string[]) => [
    `user sandlot on >${PASSWORD.replaceAll(" ", "_")} ~{sandlot}:* &{sandlot}:* -@all ${rights.join(" ")}`,
  ];

  async function opened(rights: readonly string[]) {
    const redis = await startRedis({ lines: rules(rights) });
    process.env[PASSWORD_VARIABLE] = PASSWORD.replaceAll(" ", "_");
    return { redis, settings: redis.settings({ user: "sandlot" }) };
  }

  it("needs exactly the documented rights", async () => {
    const { settings } = await opened(RIGHTS);
    const server = await openServer(settings);
    const stage = await stageOn(server);
    const heard: string[] = [];
    server.subscribe((topic) => heard.push(topic));
    await stage.until("topics arrive", async () => {
      const commit = await stage.commitOf({ [`record/${stage.newId()}`]: "A" }, { topics: ["room"] });
      stage.seqOf(await stage.commit(commit));
      return heard.includes("room");
    });
    await stage.write({ "record/a": "A", "home/a": "H" });
    await stage.write({ "record/a": null, "home/a": null });
    await stage.newMirror().follow();
    const next = stage.newEpoch();
    expect(await server.beginEpoch(stage.epoch, next, stage.patience())).toBe(next);
  });

  it("is refused at open without one of them, before anything is written", async () => {
    const { settings, redis } = await opened(RIGHTS);
    // These are used by subscribers and for replicas only, and CONFIG can be done without.
    const later = ["+subscribe", "+ping", "+wait", "+config|get"];
    for (const right of RIGHTS.filter((one) => !later.includes(one))) {
      await redis.command("ACL", "SETUSER", "sandlot", right.replace("+", "-"));
      const error = await refusalOf(settings);
      expect(isSandlotError(error, "store_unavailable")).toBe(true);
      expect(error.message).toMatch(/does not let this user do it/);
      expect(error.message).toContain("docs/stores/redis.md");
      // Refused before anything was written.
      expect(await redis.command("DBSIZE")).toBe(0);
      await redis.command("ACL", "SETUSER", "sandlot", right);
    }
    await openServer(settings);
  });

  it("is opened without CONFIG, with the weaker promise", async () => {
    const { settings } = await opened(RIGHTS.filter((right) => right !== "+config|get"));
    const server = await openServer(settings);
    expect(server.promise).toBe("may-rewind");
    expect(server.facts().unverified).toEqual(["appendfsync", "min-replicas-to-write"]);
  });

  it("cannot touch the keys of another fleet", async () => {
    const { settings } = await opened(RIGHTS);
    const error = await refusalOf({ ...settings, prefix: "other" });
    expect(error.message).toMatch(/does not let this user do it/);
  });
});

describe.skipIf(reasonToSkip() !== null)("redis with TLS", () => {
  /** An authority, and a certificate of it for the name `localhost`. */
  function certificates(redis: { file(name: string): string }, name: string) {
    const run = (...args: string[]) => execFileSync("openssl", args, { stdio: "ignore" });
    const file = (end: string) => redis.file(`${name}-${end}`);
    run(
      "req",
      "-x509",
      "-newkey",
      "ec",
      "-pkeyopt",
      "ec_paramgen_curve:prime256v1",
      "-nodes",
      "-days",
      "2",
      "-subj",
      `/CN=${name}`,
      "-keyout",
      file("ca.key"),
      "-out",
      file("ca.pem"),
    );
    run(
      "req",
      "-newkey",
      "ec",
      "-pkeyopt",
      "ec_paramgen_curve:prime256v1",
      "-nodes",
      "-subj",
      "/CN=localhost",
      "-keyout",
      file("own.key"),
      "-out",
      file("own.csr"),
    );
    writeFileSync(file("ext"), "subjectAltName=DNS:localhost\n");
    run(
      "x509",
      "-req",
      "-in",
      file("own.csr"),
      "-CA",
      file("ca.pem"),
      "-CAkey",
      file("ca.key"),
      "-CAcreateserial",
      "-days",
      "2",
      "-extfile",
      file("ext"),
      "-out",
      file("own.pem"),
    );
    return { caFile: file("ca.pem"), certFile: file("own.pem"), keyFile: file("own.key") };
  }

  async function start(clients: "yes" | "no") {
    const place = await startRedis();
    const ours = certificates(place, "ours");
    const other = certificates(place, "other");
    const port = await freePort();
    const redis = await startRedis({
      config: {
        port: "0",
        "tls-port": String(port),
        "tls-cert-file": ours.certFile,
        "tls-key-file": ours.keyFile,
        "tls-ca-cert-file": ours.caFile,
        "tls-auth-clients": clients,
      },
    });
    const settings = (host: string, tls: Partial<RedisTls> | null) =>
      redis.settings({
        topology: { kind: "standalone", endpoint: { host, port } },
        tls: tls === null ? null : { mode: "verify-full", caFile: null, certFile: null, keyFile: null, ...tls },
      });
    return { settings, ours, other };
  }

  it("is opened when authority and name are right, and refused otherwise", async () => {
    const { settings, ours, other } = await start("no");
    const server = await openServer(settings("localhost", { caFile: ours.caFile }));
    await (await stageOn(server)).write({ "record/a": "A" });
    const wrongAuthority = await refusalOf(settings("localhost", { caFile: other.caFile }));
    expect(wrongAuthority.message).toContain("certificate that is not trusted");
    expect(wrongAuthority.message).toContain("store.tls.caFile");
    const unknown = await refusalOf(settings("localhost", {}));
    expect(unknown.message).toContain("certificate that is not trusted");
    const wrongName = await refusalOf(settings("127.0.0.1", { caFile: ours.caFile }));
    expect(wrongName.message).toContain("ERR_TLS_CERT_ALTNAME_INVALID");
    await openServer(settings("127.0.0.1", { caFile: ours.caFile, mode: "verify-ca" }));
    expect((await refusalOf(settings("localhost", { caFile: other.caFile, mode: "verify-ca" }))).message).toContain(
      "not trusted",
    );
    await openServer(settings("127.0.0.1", { mode: "require" }));
    expect(isSandlotError(await refusalOf(settings("localhost", null)), "store_unavailable")).toBe(true);
  });

  it("asks for our certificate where the server wants one", async () => {
    const { settings, ours, other } = await start("yes");
    await openServer(settings("localhost", ours));
    for (const tls of [{ caFile: ours.caFile }, { ...other, caFile: ours.caFile }])
      expect(isSandlotError(await refusalOf(settings("localhost", tls)), "store_unavailable")).toBe(true);
  });
});
