/**
 * Headers of a tar stream (POSIX.1-2001, "pax"). Every entry has a pax header with path, size and time, so that neither
 * length nor bytes of a name are limited. A name that is no UTF-8 stands in the plain header, as its bytes; where it is
 * too long for that, in the pax header, marked with `hdrcharset=BINARY`.
 */

const BLOCK = 512;

export interface TarEntry {
  /** Latin-1. */
  readonly path: string;
  readonly kind: "file" | "directory" | "symlink" | "link";
  readonly mode: number;
  /** Microseconds. */
  readonly modified: bigint;
  readonly size: number;
  /** Latin-1: of a symbolic link, or the path of the same file. */
  readonly target: string | null;
}

const TYPES = { file: "0", link: "1", symlink: "2", directory: "5" } as const;

export function tarHeader(entry: TarEntry): Buffer {
  const records = paxRecords(entry);
  const pax = block({ name: "PaxHeader", link: "", type: "x", mode: 0o644, size: records.length, modified: 0n });
  const { mode, size, modified } = entry;
  const name = isPlain(entry.path) ? entry.path : entry.path.slice(-90).replace(/[^ -~]/g, "_");
  const link = entry.target !== null && isPlain(entry.target) ? entry.target : "";
  return Buffer.concat([
    pax,
    records,
    padding(records.length),
    block({ name, link, type: TYPES[entry.kind], mode, size, modified }),
  ]);
}

export function padding(length: number): Buffer {
  return Buffer.alloc((BLOCK - (length % BLOCK)) % BLOCK);
}

export const TAR_END = Buffer.alloc(2 * BLOCK);

function paxRecords({ path, modified, size, target }: TarEntry): Buffer {
  const names = { path, linkpath: target };
  const named = Object.entries(names).flatMap(([key, name]) => (name === null || isPlain(name) ? [] : [{ key, name }]));
  const isBinary = named.some(({ name }) => !isText(name));
  const seconds = `${modified < 0n ? "-" : ""}${abs(modified) / 1_000_000n}.${String(abs(modified) % 1_000_000n).padStart(6, "0")}`;
  return Buffer.concat([
    ...(isBinary ? [record("hdrcharset", Buffer.from("BINARY"))] : []),
    ...named.map(({ key, name }) => record(key, Buffer.from(name, "latin1"))),
    record("size", Buffer.from(String(size))),
    record("mtime", Buffer.from(seconds)),
  ]);
}

function isText(name: string): boolean {
  const bytes = Buffer.from(name, "latin1");
  return Buffer.from(bytes.toString("utf8")).equals(bytes);
}

/** A reader takes the bytes of the plain header as they are. */
function isPlain(name: string): boolean {
  return name.length <= 100 && !isText(name);
}

/** Its length counts its own digits. */
function record(key: string, value: Buffer): Buffer {
  const rest = 1 + key.length + 1 + value.length + 1;
  let length = rest + String(rest).length;
  if (rest + String(length).length > length) length++;
  return Buffer.concat([Buffer.from(`${length} ${key}=`), value, Buffer.from("\n")]);
}

interface Block {
  readonly name: string;
  readonly link: string;
  readonly type: string;
  readonly mode: number;
  readonly size: number;
  readonly modified: bigint;
}

function block({ name, link, type, mode, size, modified }: Block): Buffer {
  const bytes = Buffer.alloc(BLOCK);
  const octal = (value: number | bigint, at: number, length: number) =>
    bytes.write(
      `${value
        .toString(8)
        .padStart(length - 1, "0")
        .slice(-(length - 1))}\0`,
      at,
      "latin1",
    );
  bytes.write(name, 0, 100, "latin1");
  octal(mode, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size < 8 ** 11 ? size : 0, 124, 12);
  octal(modified > 0n ? modified / 1_000_000n : 0n, 136, 12);
  bytes.write("        ", 148, "latin1");
  bytes.write(type, 156, "latin1");
  bytes.write(link, 157, 100, "latin1");
  bytes.write("ustar\x0000", 257, "latin1");
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  bytes.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return bytes;
}

function abs(value: bigint): bigint {
  return value < 0n ? -value : value;
}
