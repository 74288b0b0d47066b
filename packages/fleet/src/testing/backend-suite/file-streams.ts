/** Files as streams, and conditional writes. */

import type { BackendCase } from "./stage.ts";

const HERE = "/mnt/user-data/workspace";
const MIB = 1024 * 1024;

export const fileStreamCases: readonly BackendCase[] = [
  {
    name: "what is uploaded is downloaded, byte for byte",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      const sent = Uint8Array.from({ length: 3 * MIB + 17 }, (_, index) => (index * 31) & 255);
      await files.upload(`${HERE}/deep/down/blob`, pieces(sent, 100_003), { mode: 0o600 });
      const got = await collected(files.download(`${HERE}/deep/down/blob`));
      stage.expect(Buffer.compare(Buffer.from(sent), Buffer.from(got))).toBe(0);
      stage.expect((await files.stat(`${HERE}/deep/down/blob`)).mode).toBe(0o600);
    },
  },
  {
    name: "a range is downloaded",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/digits`, "0123456789");
      const read = async (range: { offset?: number; length?: number }) =>
        new TextDecoder().decode(await collected(files.download(`${HERE}/digits`, range)));
      stage.expect(await read({ offset: 3, length: 4 })).toBe("3456");
      stage.expect(await read({ offset: 8 })).toBe("89");
      stage.expect(await read({ offset: 20 })).toBe("");
    },
  },
  {
    name: "an empty file is uploaded and downloaded",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.upload(`${HERE}/nothing`, pieces(new Uint8Array(0), 1));
      stage.expect((await collected(files.download(`${HERE}/nothing`))).length).toBe(0);
    },
  },
  {
    name: "an upload that breaks off leaves what was there",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/kept`, "before");
      const reason = new Error("the source broke");
      const broken = async function* () {
        yield new Uint8Array(MIB);
        throw reason;
      };
      const outcome = await files.upload(`${HERE}/kept`, broken()).then(
        () => "it resolved",
        () => "rejected",
      );
      stage.expect(outcome).toBe("rejected");
      stage.expect(await files.readText(`${HERE}/kept`)).toBe("before");
      stage.expect((await files.list(HERE)).entries.map(({ path }) => path)).toEqual([`${HERE}/kept`]);
    },
  },
  {
    name: "downloading what is not there is file_not_found",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await stage.rejects(collected(files.download(`${HERE}/nowhere`)), "file_not_found");
    },
  },
  {
    name: "a version changes with the content and only then",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/file`, "one");
      const { version } = await files.stat(`${HERE}/file`);
      await files.read(`${HERE}/file`);
      stage.expect((await files.stat(`${HERE}/file`)).version).toBe(version);
      await files.write(`${HERE}/file`, "two");
      stage.expect((await files.stat(`${HERE}/file`)).version === version).toBe(false);
    },
  },
  {
    name: "a write can insist on a version",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/file`, "one");
      const { version } = await files.stat(`${HERE}/file`);
      await files.write(`${HERE}/file`, "two", { ifVersion: version });
      await stage.rejects(files.write(`${HERE}/file`, "three", { ifVersion: version }), "file_changed");
      stage.expect(await files.readText(`${HERE}/file`)).toBe("two");
    },
  },
  {
    name: "a write can insist that there is nothing yet",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/new`, "one", { ifVersion: null });
      await stage.rejects(files.write(`${HERE}/new`, "two", { ifVersion: null }), "file_changed");
      await stage.rejects(files.write(`${HERE}/other`, "x", { ifVersion: "1-2-3" }), "file_changed");
      stage.expect(await files.readText(`${HERE}/new`)).toBe("one");
    },
  },
];

async function* pieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function collected(stream: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
}
