/**
 * Files: reading, writing, moving, removing, describing.
 */

import { SANDBOX_LIMITS } from "@sandlot/contract";
import type { BackendCase } from "./stage.ts";

const HERE = "/mnt/user-data/workspace";
const MISSING = `${HERE}/missing`;

export const fileCases: readonly BackendCase[] = [
  {
    name: "text and bytes come back as they were written",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      const bytes = Uint8Array.from({ length: 1_024 }, (_, index) => index % 256);
      await files.write(`${HERE}/bytes`, bytes);
      stage.expect([...(await files.read(`${HERE}/bytes`))]).toEqual([...bytes]);
      const text = "\ufeffgrüße 🎈\r\nzweite Zeile ohne Ende";
      await files.write(`${HERE}/text`, text);
      stage.expect(await files.readText(`${HERE}/text`)).toBe(text);
      await files.write(`${HERE}/empty`, "");
      stage.expect((await files.read(`${HERE}/empty`)).length).toBe(0);
      stage.expect(await files.readText(`${HERE}/empty`)).toBe("");
    },
  },
  {
    name: "a range is cut to what is there",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/f`, "0123456789");
      const range = async (offset?: number, length?: number) =>
        Buffer.from(
          await files.read(`${HERE}/f`, {
            ...(offset === undefined ? {} : { offset }),
            ...(length === undefined ? {} : { length }),
          }),
        ).toString();
      stage.expect(await range(2, 3)).toBe("234");
      stage.expect(await range(0, 10)).toBe("0123456789");
      stage.expect(await range(undefined, 1)).toBe("0");
      stage.expect(await range(8)).toBe("89");
      stage.expect(await range(9, 5)).toBe("9");
      stage.expect(await range(10, 1)).toBe("");
      stage.expect(await range(11)).toBe("");
      stage.expect(await range(3, 0)).toBe("");
      await stage.rejects(files.read(`${HERE}/f`, { offset: -1 }), "invalid_request");
      await stage.rejects(files.read(`${HERE}/f`, { length: 1.5 }), "invalid_request");
    },
  },
  {
    name: "bytes that are not UTF-8 are no text, unless a lossy reading is asked for",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/latin1`, new Uint8Array([0x6f, 0x6b, 0x0a, 0xe9, 0x0a]));
      await stage.rejects(files.readText(`${HERE}/latin1`), "file_not_text");
      await stage.rejects(files.readText(`${HERE}/latin1`, { startLine: 2 }), "file_not_text");
      stage.expect(await files.readText(`${HERE}/latin1`, { lossy: true })).toBe("ok\n\ufffd\n");
      stage.expect(await files.readText(`${HERE}/latin1`, { startLine: 2, lossy: true })).toBe("\ufffd");
      // Only the lines that are read must be text.
      stage.expect(await files.readText(`${HERE}/latin1`, { endLine: 1 })).toBe("ok");
    },
  },
  {
    name: "lines are counted from 1, included at both ends, and joined without the last newline",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/f`, "one\ntwo\nthree\n");
      const lines = (startLine: number, endLine: number) => files.readText(`${HERE}/f`, { startLine, endLine });
      stage.expect(await lines(1, 1)).toBe("one");
      stage.expect(await lines(2, 3)).toBe("two\nthree");
      stage.expect(await lines(3, 99)).toBe("three");
      stage.expect(await lines(4, 4)).toBe("");
      stage.expect(await files.readText(`${HERE}/f`, { startLine: 2 })).toBe("two\nthree");
      stage.expect(await files.readText(`${HERE}/f`, { endLine: 2 })).toBe("one\ntwo");
      for (const [start, end] of [
        [0, 1],
        [-1, 1],
        [2, 1],
        [1.5, 2],
      ] as const)
        await stage.rejects(lines(start, end), "invalid_request");
    },
  },
  {
    name: "a read beyond the limit is refused with both sizes, a range of it is not",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const max = SANDBOX_LIMITS.readMaxBytes;
      await sandbox.exec(`head -c ${max} /dev/zero > big`);
      stage.expect((await sandbox.files.read(`${HERE}/big`)).length).toBe(max);
      await sandbox.exec("printf x >> big");
      await stage.rejects(sandbox.files.read(`${HERE}/big`), "file_too_large");
      await stage.rejects(sandbox.files.readText(`${HERE}/big`), "file_too_large");
      stage.expect([...(await sandbox.files.read(`${HERE}/big`, { offset: max }))]).toEqual([120]);
    },
  },
  {
    name: "write makes parent directories and replaces what is there",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/a/b/c`, "long old content");
      await files.write(`${HERE}/a/b/c`, "new");
      stage.expect(await files.readText(`${HERE}/a/b/c`)).toBe("new");
    },
  },
  {
    name: "write keeps the mode unless one is given, and leaves nothing beside the file",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      await sandbox.exec("echo '#!/bin/sh' > run; chmod 750 run");
      await sandbox.files.write(`${HERE}/run`, "#!/bin/sh\necho ran\n");
      stage.expect((await sandbox.files.stat(`${HERE}/run`)).mode).toBe(0o750);
      stage.expect((await sandbox.exec("./run")).stdout).toBe("ran\n");
      await sandbox.files.write(`${HERE}/run`, "x", { mode: 0o600 });
      stage.expect((await sandbox.files.stat(`${HERE}/run`)).mode).toBe(0o600);
      stage.expect((await sandbox.exec("ls -A")).stdout).toBe("run\n");
    },
  },
  {
    name: "write refuses setuid and setgid, and then nothing has changed",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/f`, "before");
      for (const mode of [0o4755, 0o2755, 0o6000, 0o10644, -1]) {
        await stage.rejects(files.write(`${HERE}/f`, "after", { mode }), "invalid_request");
        await stage.rejects(files.upload(`${HERE}/new`, one("x"), { mode }), "invalid_request");
      }
      stage.expect(await files.readText(`${HERE}/f`)).toBe("before");
      stage.expect((await files.list(HERE)).entries.map(({ path }) => path)).toEqual([`${HERE}/f`]);
      await files.write(`${HERE}/f`, "sticky", { mode: 0o1755 });
      stage.expect((await files.stat(`${HERE}/f`)).mode).toBe(0o1755);
    },
  },
  {
    name: "readers see the old or the new content, never a part",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      const contents = ["a".repeat(200_000), "b".repeat(100_000)];
      await files.write(`${HERE}/f`, contents[0] ?? "");
      const writing = (async () => {
        for (let i = 1; i <= 10; i++) await files.write(`${HERE}/f`, contents[i % 2] ?? "");
      })();
      for (let i = 0; i < 10; i++) stage.expect(contents.includes(await files.readText(`${HERE}/f`))).toBe(true);
      await writing;
    },
  },
  {
    name: "append adds to the end, also from many at once, and makes what is missing",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.append(`${HERE}/new/log`, "first\n");
      await files.append(`${HERE}/new/log`, Uint8Array.of(0xff, 0x0a));
      stage.expect([...(await files.read(`${HERE}/new/log`))].slice(-3)).toEqual([0x0a, 0xff, 0x0a]);
      await Promise.all(Array.from({ length: 20 }, (_, index) => files.append(`${HERE}/many`, `line ${index}\n`)));
      stage.expect((await files.readText(`${HERE}/many`)).split("\n").length).toBe(21);
    },
  },
  {
    name: "write and append follow a symbolic link to its target",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      await sandbox.exec("echo old > target; ln -s target link");
      await sandbox.files.write(`${HERE}/link`, "new\n");
      await sandbox.files.append(`${HERE}/link`, "more\n");
      stage.expect(await sandbox.files.readText(`${HERE}/target`)).toBe("new\nmore\n");
      stage.expect((await sandbox.files.stat(`${HERE}/link`)).kind).toBe("symlink");
    },
  },
  {
    name: "what is missing, a directory or below a file says so",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/file`, "x");
      await files.mkdir(`${HERE}/dir`);
      await stage.rejects(files.read(MISSING), "file_not_found");
      await stage.rejects(files.readText(MISSING), "file_not_found");
      await stage.rejects(files.stat(MISSING), "file_not_found");
      await stage.rejects(files.remove(MISSING), "file_not_found");
      await stage.rejects(files.rename(MISSING, `${HERE}/x`), "file_not_found");
      await stage.rejects(files.read(`${HERE}/dir`), "is_a_directory");
      await stage.rejects(files.readText(`${HERE}/dir`), "is_a_directory");
      await stage.rejects(files.write(`${HERE}/dir`, "x"), "is_a_directory");
      await stage.rejects(files.append(`${HERE}/dir`, "x"), "is_a_directory");
      await stage.rejects(files.write(`${HERE}/file/x`, "x"), "not_a_directory");
      await stage.rejects(files.mkdir(`${HERE}/file/x`), "not_a_directory");
      await stage.rejects(files.mkdir(`${HERE}/file`), "not_a_directory");
    },
  },
  {
    name: "a path that is none is refused by every call",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      for (const path of ["", "/tmp/a\0b"]) {
        await stage.rejects(files.read(path), "invalid_path");
        await stage.rejects(files.write(path, "x"), "invalid_path");
        await stage.rejects(files.list(path), "invalid_path");
        await stage.rejects(files.rename("/tmp/a", path), "invalid_path");
      }
      await files.write("/tmp/../tmp/./odd//name", "x");
      stage.expect(await files.readText("/tmp/odd/name")).toBe("x");
    },
  },
  {
    name: "mkdir makes parents and is content with what is there",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.mkdir(`${HERE}/a/b/c`);
      await files.mkdir(`${HERE}/a/b/c`);
      stage.expect((await files.stat(`${HERE}/a/b/c`)).kind).toBe("directory");
    },
  },
  {
    name: "rename moves files and directories, over a file and between mounts",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/a`, "a");
      await files.write(`${HERE}/b`, "b");
      await files.rename(`${HERE}/a`, `${HERE}/b`);
      stage.expect(await files.readText(`${HERE}/b`)).toBe("a");
      await stage.rejects(files.stat(`${HERE}/a`), "file_not_found");
      await files.write(`${HERE}/dir/deep/file`, "x");
      await files.rename(`${HERE}/dir`, "/tmp/dir");
      stage.expect(await files.readText("/tmp/dir/deep/file")).toBe("x");
      await stage.rejects(files.stat(`${HERE}/dir`), "file_not_found");
    },
  },
  {
    name: "rename goes over nothing else",
    run: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/file`, "x");
      await files.write(`${HERE}/full/file`, "x");
      await files.mkdir(`${HERE}/dir`);
      await stage.rejects(files.rename(`${HERE}/file`, `${HERE}/dir`), "is_a_directory");
      await stage.rejects(files.rename(`${HERE}/dir`, `${HERE}/file`), "not_a_directory");
      await stage.rejects(files.rename(`${HERE}/dir`, `${HERE}/full`), "directory_not_empty");
      await stage.rejects(files.rename(`${HERE}/full`, `${HERE}/full/inside`), "invalid_path");
      await stage.rejects(files.rename(`${HERE}/file`, `${HERE}/nowhere/file`), "file_not_found");
    },
  },
  {
    name: "remove takes a file or an empty directory, and a tree only when told",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { files } = sandbox;
      await files.write(`${HERE}/tree/deep/file`, "x");
      await sandbox.exec("echo kept > kept; ln -s kept link; mkdir empty");
      await stage.rejects(files.remove(`${HERE}/tree`), "directory_not_empty");
      await files.remove(`${HERE}/tree`, { recursive: true });
      await files.remove(`${HERE}/empty`);
      await files.remove(`${HERE}/link`);
      stage.expect((await files.list(HERE)).entries.map(({ path }) => path)).toEqual([`${HERE}/kept`]);
    },
  },
  {
    name: "stat describes files, directories and links themselves",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      await sandbox.files.write(`${HERE}/file`, "grüße", { mode: 0o640 });
      await sandbox.exec("ln -s nowhere link");
      const { modifiedAt, version, ...file } = await sandbox.files.stat(`${HERE}/file`);
      stage.expect(version === "").toBe(false);
      stage.expect(file).toEqual({ path: `${HERE}/file`, kind: "file", sizeBytes: 7, mode: 0o640 });
      stage.expect(modifiedAt).toBeGreaterThan(1_600_000_000_000);
      stage.expect((await sandbox.files.stat(HERE)).kind).toBe("directory");
      stage.expect((await sandbox.files.stat(`${HERE}/link`)).kind).toBe("symlink");
      stage.expect((await sandbox.files.stat("/dev/null")).kind).toBe("other");
    },
  },
  {
    name: "private files of one sandbox are not those of another",
    run: async (stage) => {
      const [one, two] = [await stage.sandbox(), await stage.sandbox()];
      await one.files.write("/tmp/secret", "x");
      await stage.rejects(two.files.stat("/tmp/secret"), "file_not_found");
    },
  },
];

async function* one(piece: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(piece);
}
