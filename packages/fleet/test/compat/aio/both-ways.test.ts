/**
 * Both directions at once: Sandlot's AIO client, without a key, against the AIO API that Sandlot's daemon serves in a tunnel.
 */

import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { pipeline } from "node:stream";
import { AIO_TUNNEL_PORT } from "@sandlot/contract";
import { beforeAll, expect, it, onTestFinished } from "vitest";
import { daemonFile } from "../../../../sandboxd/test/start-daemon.ts";
import { AioAttachment, AioWire, awaitServer } from "../../../src/compat/aio/index.ts";
import { attached } from "../../sandboxd/attached.ts";
import { attach, NEVER, TARGET, world } from "./start-stand-in.ts";

beforeAll(daemonFile, 60_000);

it("commands and files go through the daemon as through any other server", async () => {
  const { attachment, daemon } = await attached();
  const connect = async () => (await attachment.connect(AIO_TUNNEL_PORT)) as Socket;
  const wire = new AioWire({ address: { connect, close: () => {} }, apiKey: null });
  await awaitServer(wire, world, NEVER);
  const knowledge = { checkCurrent: async () => {}, liveness: async () => "alive" as const };
  const held = new AioAttachment(wire, world, { ...TARGET, environment: { COLOUR: "blue" } }, knowledge);
  onTestFinished(() => held.close());
  const { sandbox } = held;
  const cwd = daemon.workspace;
  const file = join(cwd, "deep/file");

  const done = await sandbox.exec("echo $COLOUR; cat; echo err >&2; exit 3", { cwd, stdin: "in\n" });
  expect(done).toMatchObject({ status: "completed", exitCode: 3, stdout: "blue\nin\n", stderr: "err\n" });
  expect(await sandbox.exec("sleep 60", { cwd, timeoutMs: 300 })).toMatchObject({
    status: "timed_out",
    exitCode: null,
  });
  await sandbox.files.write(file, "one\ntwo\n", { mode: 0o640 });
  await sandbox.files.append(file, "three\n");
  expect(await sandbox.files.readText(file, { startLine: 2 })).toBe("two\nthree");
  expect(await sandbox.files.stat(file)).toMatchObject({ kind: "file", sizeBytes: 14, mode: 0o640 });
  expect((await sandbox.files.glob(cwd, "**/file")).paths).toEqual([file]);
  expect((await sandbox.files.grep(cwd, "TWO")).matches).toEqual([{ path: file, lineNumber: 2, line: "two" }]);
  await expect(sandbox.files.grep(cwd, "(")).rejects.toMatchObject({ code: "invalid_pattern" });
  await expect(sandbox.files.read(join(cwd, "none"))).rejects.toMatchObject({ code: "file_not_found" });

  const { execId } = await sandbox.spawn("echo up; read line; echo got $line; sleep 60", { cwd, keepStdinOpen: true });
  await sandbox.execs.waitForOutput(execId, "up", { timeoutMs: 5_000 });
  await sandbox.execs.writeStdin(execId, "this\n");
  await sandbox.execs.waitForOutput(execId, "got this", { timeoutMs: 5_000 });
  expect(await sandbox.execs.kill(execId)).toBe(true);
  expect((await sandbox.execs.list())[0]).toMatchObject({ execId, status: "killed" });
});

it("a port of the loopback can be given to one client that has no key", async () => {
  const { attachment: lease, daemon } = await attached();
  const server = createServer((client) => {
    lease.connect(AIO_TUNNEL_PORT).then(
      (inside) => pipeline(client, inside, client, () => {}),
      () => client.destroy(),
    );
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  expect((await fetch(`${url}/v1/sandbox`, { headers: { connection: "close" } })).status).toBe(200);
  const { sandbox } = attach(url);
  expect((await sandbox.exec("echo through", { cwd: daemon.workspace })).stdout).toBe("through\n");
});
