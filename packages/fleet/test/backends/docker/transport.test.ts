/** The choice of the transport to a daemon, and the engine's path of our directories: decided without an engine. */

import { describe, expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { hearReady } from "../../../src/backends/docker/container/announcement.ts";
import { outsideBindings, outsidePath } from "../../../src/backends/docker/container/host-paths.ts";
import { checkFilter } from "../../../src/backends/docker/container/isolation.ts";
import { chooseTransport, mayHideSockets } from "../../../src/backends/docker/container/transport.ts";
import { supportsEgress } from "../../../src/backends/docker/egress.ts";

const none: Blueprint["network"] = { mode: "none", allow: [] };
const open: Blueprint["network"] = { mode: "open", allow: [] };
const allowlist: Blueprint["network"] = { mode: "allowlist", allow: [{ host: "a.example", ports: [] }] };
const here = { isOnThisHost: true, relaysSockets: false };
const elsewhere = { isOnThisHost: false, relaysSockets: false };
const relaying = { isOnThisHost: false, relaysSockets: true };
const auto = { transport: "auto", network: null } as const;
const published = { transport: "auto", network: "sandboxes" } as const;

describe("a transport", () => {
  it("is a socket wherever one can be shared", () => {
    for (const wish of [none, open, allowlist]) expect(chooseTransport(published, here, true, wish)).toBe("socket");
    expect(chooseTransport({ transport: "socket", network: null }, elsewhere, false, none)).toBe("socket");
  });

  it("is a port for an open network that somebody has named, where there is no socket or no way out", () => {
    expect(chooseTransport(published, elsewhere, false, open)).toBe("port");
    expect(chooseTransport(published, here, false, open)).toBe("port");
    expect(chooseTransport({ ...published, transport: "port" }, here, true, open)).toBe("port");
  });

  it("is a socket that the engine relays, where it does, and nothing else there", () => {
    expect(chooseTransport(auto, relaying, false, none)).toBe("socket");
    const missing = expect.objectContaining({ code: "capability_missing" });
    for (const wish of [open, allowlist])
      expect(() => chooseTransport(published, relaying, false, wish)).toThrow(missing);
    expect(() => chooseTransport({ ...published, transport: "port" }, relaying, false, open)).toThrow(missing);
  });

  it("is refused, not weakened, for anything else", () => {
    const missing = expect.objectContaining({ code: "capability_missing" });
    for (const [wanted, facts, wish] of [
      [auto, elsewhere, none],
      [auto, elsewhere, open],
      [published, elsewhere, none],
      [published, elsewhere, allowlist],
      [auto, here, open],
      [{ ...auto, transport: "socket" }, here, open],
    ] as const)
      expect(() => chooseTransport(wanted, facts, false, wish)).toThrow(missing);
  });

  it("takes a look with every runtime that is not the kernel's own", () => {
    expect(mayHideSockets(null, { defaultRuntime: "runc" })).toBe(false);
    expect(mayHideSockets("runsc", { defaultRuntime: "runc" })).toBe(true);
    expect(mayHideSockets(null, { defaultRuntime: "kata" })).toBe(true);
    const facts = { isOnThisHost: true, isRootless: false, defaultRuntime: "runc" };
    expect(supportsEgress(facts, { hostPaths: {}, runtime: "runsc" })).toBe(false);
    expect(supportsEgress(facts, { hostPaths: { "/a": "/b" }, runtime: null })).toBe(false);
  });
});

describe("the engine's filter of system calls", () => {
  it("must be there where containers share the kernel", () => {
    const facts = { hasSeccomp: false, defaultRuntime: "runc" };
    const refused = expect.objectContaining({ code: "isolation_unavailable" });
    expect(() => checkFilter(facts, null)).toThrow(refused);
    expect(() => checkFilter({ ...facts, hasSeccomp: true }, null)).not.toThrow();
    expect(() => checkFilter(facts, "runsc")).not.toThrow();
  });
});

describe("a path as the engine sees it", () => {
  const paths = { "/var/lib/sandlot": "/srv/data/sandlot", "/var/lib/sandlot/special/": "/elsewhere", "/skills": "/" };

  it("is the same where nothing is configured", () => expect(outsidePath("/any/where", {})).toBe("/any/where"));

  it("is told by the longest entry that covers it", () => {
    expect(outsidePath("/var/lib/sandlot", paths)).toBe("/srv/data/sandlot");
    expect(outsidePath("/var/lib/sandlot/fleet/homes", paths)).toBe("/srv/data/sandlot/fleet/homes");
    expect(outsidePath("/var/lib/sandlot/special/x", paths)).toBe("/elsewhere/x");
    expect(outsidePath("/skills/pdf", paths)).toBe("/pdf");
    expect(outsidePath("/x", { "/": "/host" })).toBe("/host/x");
  });

  it("is refused where no entry covers it, also when only its beginning looks so", () => {
    expect(outsidePath("/var/lib/sandlot-other", paths)).toBe(null);
    const binding = { from: "/etc/ssl", to: "/mnt/ssl", readOnly: true };
    expect(() => outsideBindings([binding], paths)).toThrow(expect.objectContaining({ code: "mount_refused" }));
  });
});

describe("a daemon's announcement in what its container says", () => {
  const who = { sandboxId: "s", generation: 3 };
  const line = (generation: number) =>
    `${JSON.stringify({ ready: true, pid: 1, sandboxId: "s", generation, port: null })}\n`;

  it("is heard in pieces, after other words, and only its own", async () => {
    const said = framed(`a shell says something\n${line(2)}${line(3)}`);
    let asked = 0;
    async function* pieces() {
      for (; asked < said.length; asked += 5) yield said.subarray(asked, asked + 5);
      throw new Error("nobody should listen any longer");
    }
    await hearReady(stream(pieces()), who, new AbortController().signal);
  });

  it("that never comes ends with the signal, not before", async () => {
    const controller = new AbortController();
    async function* pieces() {
      yield framed(line(2));
    }
    const heard = hearReady(stream(pieces()), who, controller.signal);
    setTimeout(() => controller.abort(new Error("late")), 20);
    await expect(heard).rejects.toThrow("late");
  });
});

function framed(text: string): Buffer {
  const header = Buffer.alloc(8);
  header[0] = 1;
  header.writeUInt32BE(Buffer.byteLength(text), 4);
  return Buffer.concat([header, Buffer.from(text)]);
}

function stream(pieces: AsyncGenerator<Buffer>): NodeJS.ReadableStream {
  return Object.assign(pieces, { destroy: () => {} }) as unknown as NodeJS.ReadableStream;
}
