/**
 * The client against a real gateway: the behavioural cases of the backend suite run through it, so that a sandbox
 * behaves the same on both sides of the wire.
 */

import { createHash } from "node:crypto";
import { type ClientLease, SandlotClient } from "@sandlot/client";
import { SANDBOX_LIMITS, type Sandbox } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { execCases } from "../../src/testing/backend-suite/exec.ts";
import { execEndingCases } from "../../src/testing/backend-suite/exec-ending.ts";
import { fileSearchCases } from "../../src/testing/backend-suite/file-search.ts";
import { fileStreamCases } from "../../src/testing/backend-suite/file-streams.ts";
import { fileCases } from "../../src/testing/backend-suite/files.ts";
import { spawningCases } from "../../src/testing/backend-suite/spawning.ts";
import { type BackendHarness, BackendStage } from "../../src/testing/backend-suite/stage.ts";
import { richBackend } from "./support/rich-backend.ts";
import { openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let client: SandlotClient;
let count = 0;
const leases: ClientLease[] = [];

beforeAll(async () => {
  stage = await openStage({
    enrich: richBackend,
    settings: {
      rate: { perKeyPerSecond: 100_000, perUserPerSecond: 100_000, burst: 100_000 },
      execResultMaxBytes: SANDBOX_LIMITS.execOutputMaxBytes,
    },
    fleet: { limits: { max: 500 } },
  });
  const { key } = await stage.user("suite");
  client = new SandlotClient({ url: stage.gateway.url, apiKey: key });
});
afterAll(async () => {
  await Promise.all(leases.map((lease) => lease.release()));
  await stage.done();
});

async function freshSandbox(): Promise<Sandbox> {
  const lease = await client.acquire({ thread: `case-${++count}`, purpose: "suite" });
  leases.push(lease);
  return lease.sandbox;
}

/** A stage whose sandboxes are behind a gateway; the backend itself is out of reach. */
class ClientStage extends BackendStage {
  override sandbox(): Promise<Sandbox> {
    return freshSandbox();
  }
}

const NO_BLUEPRINT = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } } as const;
const NO_BACKEND = { backend: { name: "memory", capabilities: new Set() } } as unknown as BackendHarness;

const GROUPS = {
  exec: execCases,
  "exec ending": execEndingCases,
  files: fileCases,
  "file search": fileSearchCases,
  "file streams": fileStreamCases,
  spawning: spawningCases,
};

/** Cases about attachments, which a client does not have. Each must exist, so that the list stays true. */
const NOT_THE_CLIENTS = new Set(["exec ending: what runs in the background outlives the attachment"]);

describe("the backend suite through the client", () => {
  for (const [group, cases] of Object.entries(GROUPS))
    describe(group, () => {
      for (const one of cases.filter(({ name }) => !NOT_THE_CLIENTS.has(`${group}: ${name}`)))
        it(one.name, async () => {
          const through = new ClientStage(NO_BACKEND, NO_BLUEPRINT, expect);
          await one.run(through);
        });
    });
});

it("leaves out only cases that exist", () => {
  const names = Object.entries(GROUPS).flatMap(([group, cases]) => cases.map(({ name }) => `${group}: ${name}`));
  expect([...NOT_THE_CLIENTS].filter((name) => !names.includes(name))).toEqual([]);
});

describe("the client", () => {
  it("moves large files as they are, both ways", async () => {
    const sandbox = await freshSandbox();
    const piece = new Uint8Array(1_000_003).map((_, index) => (index * 7) % 256);
    async function* pieces() {
      for (let number = 0; number < 20; number += 1) yield piece;
    }
    await sandbox.files.upload("/mnt/user-data/outputs/large", pieces());
    const expected = createHash("sha256");
    for (let number = 0; number < 20; number += 1) expected.update(piece);
    const actual = createHash("sha256");
    for await (const part of sandbox.files.download("/mnt/user-data/outputs/large")) actual.update(part);
    expect(actual.digest("hex")).toBe(expected.digest("hex"));
  });

  it("uses a terminal", async () => {
    const sandbox = await freshSandbox();
    const terminal = await sandbox.terminals.open({ columns: 90, rows: 20 });
    terminal.write("size");
    let text = "";
    for await (const { bytes } of terminal.output) {
      text += new TextDecoder().decode(bytes);
      if (text.includes("\n")) break;
    }
    expect(text).toBe("90x20\r\n");
    await terminal.detach();
    expect(await terminal.ended).toBeNull();
    const again = await sandbox.terminals.attach(terminal.terminalId, { fromOffset: 2 });
    again.write("exit 4");
    expect(await again.ended).toEqual({ exitCode: 4, signal: null });
    await expect(sandbox.terminals.attach("none")).rejects.toMatchObject({ code: "terminal_not_found" });
  });

  it("aborts a command, and the command ends", async () => {
    const sandbox = await freshSandbox();
    const controller = new AbortController();
    const running = sandbox.exec("sleep 60", { execId: "long", signal: controller.signal });
    await expect.poll(async () => (await sandbox.execs.list()).map(({ status }) => status)).toEqual(["running"]);
    controller.abort(new Error("enough"));
    await expect(running).rejects.toThrow("enough");
    await expect.poll(async () => (await sandbox.execs.list()).map(({ status }) => status)).toEqual(["killed"]);
  });

  it("uploads, links ports, branches and deletes threads", async () => {
    const reply = await client.uploadFiles("whole", [{ name: "a.txt", content: "one" }]);
    expect(reply.files.map(({ filename }) => filename)).toEqual(["a.txt"]);
    expect((await client.listUploads("whole")).map(({ sizeBytes }) => sizeBytes)).toEqual([3]);
    expect((await client.linkPort("whole", 3_000)).url).toContain("3000--");
    expect(await client.branchThread("whole", "half")).toMatchObject({ fileCount: 1 });
    expect(await client.deleteThread("half")).toEqual({ outcome: "stopped" });
  });

  it("follows the fleet's events, for operators", async () => {
    const operator = new SandlotClient({ url: stage.gateway.url, apiKey: stage.operator.key });
    const stop = new AbortController();
    let seen: string | null = null;
    const following = (async () => {
      // The client does not know whether the first lease arrived.
      for await (const event of operator.events({ signal: stop.signal }))
        if (event?.type === "lease-acquired" && event.thread === "eventful" && event.purpose === "to be seen") {
          seen = event.purpose;
          return;
        }
    })();
    // It reports only events after it listens, and nothing says when it does.
    await using _lease = await operator.actingFor("suite").acquire({ thread: "eventful" });
    const asked = async () => {
      await using _another = await operator.actingFor("suite").acquire({ thread: "eventful", purpose: "to be seen" });
      return seen;
    };
    await expect.poll(asked).toBe("to be seen");
    await following;
    stop.abort();
    expect((await operator.listSandboxes()).length).toBeGreaterThan(0);
    await expect(client.listKeys()).rejects.toMatchObject({ code: "forbidden" });
  });
});
