/**
 * Files inside a `.skill` archive, which is a ZIP: `outputs/review.skill/SKILL.md` is the member `SKILL.md` of
 * `outputs/review.skill`. An agent made the archive, so its headers are not trusted.
 *
 * Invariants
 * - Only the archive's directory and the one member are read, each within a limit, whatever its headers claim.
 * - A member that unpacks to more than `MEMBER_MAX_BYTES` is refused while it unpacks.
 */

import { crc32, inflateRaw } from "node:zlib";
import { SandlotError } from "@sandlot/contract";

export interface SkillPath {
  readonly archive: string;
  readonly member: string;
}

/** Reads bytes of the archive. */
export type ReadBytes = (offset: number, length: number) => Promise<Buffer>;

const MEMBER_MAX_BYTES = 16 * 1024 * 1024;
const DIRECTORY_MAX_BYTES = 4 * 1024 * 1024;
/** The end record and the longest comment after it. */
const END_MAX_BYTES = 22 + 65_535;
const SIGNATURES = { end: 0x06054b50, entry: 0x02014b50, local: 0x04034b50 } as const;
const STORED = 0;
const DEFLATED = 8;
const ENCRYPTED = 1;

/** `null` where no part of the path is an archive. */
export function skillPathOf(path: string): SkillPath | null {
  const at = path.indexOf(".skill/");
  if (at < 0) return null;
  const archive = path.slice(0, at + ".skill".length);
  const member = path.slice(archive.length + 1);
  return member === "" ? null : { archive, member };
}

interface Entry {
  readonly name: string;
  readonly flags: number;
  readonly method: number;
  readonly crc: number;
  readonly packedBytes: number;
  readonly sizeBytes: number;
  readonly headerAt: number;
}

/** The member's bytes. `null` when the archive has no such member; `unsupported_media` when it is no valid archive. */
export async function readMember(read: ReadBytes, archiveBytes: number, member: string): Promise<Buffer | null> {
  const entries = await entriesOf(read, archiveBytes);
  // Archives often contain one folder, which the URL leaves out.
  const entry =
    entries.find(({ name }) => name === member) ??
    entries.find(({ name }) => name.slice(name.indexOf("/") + 1) === member && name.includes("/"));
  if (entry === undefined || entry.name.endsWith("/")) return null;
  if ((entry.flags & ENCRYPTED) !== 0) throw unreadable("the file in it is encrypted");
  if (entry.sizeBytes > MEMBER_MAX_BYTES || entry.packedBytes > MEMBER_MAX_BYTES) throw tooLarge(member);
  const content = await unpacked(await packedBytes(read, archiveBytes, entry), entry, member);
  if (content.byteLength !== entry.sizeBytes || crc32(content) !== entry.crc)
    throw unreadable("a file in it is damaged");
  return content;
}

async function entriesOf(read: ReadBytes, archiveBytes: number): Promise<readonly Entry[]> {
  const tailBytes = Math.min(archiveBytes, END_MAX_BYTES);
  const tail = await read(archiveBytes - tailBytes, tailBytes);
  const end = endRecord(tail);
  if (end === null) throw unreadable("it is no ZIP archive");
  const directoryBytes = end.readUInt32LE(12);
  const directoryAt = end.readUInt32LE(16);
  if (directoryBytes > DIRECTORY_MAX_BYTES || directoryAt + directoryBytes > archiveBytes)
    throw unreadable("its directory is not where it says, or too large");
  return parseDirectory(await read(directoryAt, directoryBytes));
}

function endRecord(tail: Buffer): Buffer | null {
  for (let at = tail.byteLength - 22; at >= 0; at -= 1)
    if (tail.readUInt32LE(at) === SIGNATURES.end) return tail.subarray(at);
  return null;
}

function parseDirectory(directory: Buffer): readonly Entry[] {
  const entries: Entry[] = [];
  for (let at = 0; at + 46 <= directory.byteLength; ) {
    if (directory.readUInt32LE(at) !== SIGNATURES.entry) throw unreadable("its directory is damaged");
    const nameBytes = directory.readUInt16LE(at + 28);
    const moreBytes = directory.readUInt16LE(at + 30) + directory.readUInt16LE(at + 32);
    entries.push({
      name: directory.toString("utf8", at + 46, at + 46 + nameBytes).replace(/^\.\//, ""),
      flags: directory.readUInt16LE(at + 8),
      method: directory.readUInt16LE(at + 10),
      crc: directory.readUInt32LE(at + 16),
      packedBytes: directory.readUInt32LE(at + 20),
      sizeBytes: directory.readUInt32LE(at + 24),
      headerAt: directory.readUInt32LE(at + 42),
    });
    at += 46 + nameBytes + moreBytes;
  }
  return entries;
}

async function packedBytes(read: ReadBytes, archiveBytes: number, { headerAt, packedBytes }: Entry): Promise<Buffer> {
  if (headerAt + 30 > archiveBytes) throw unreadable("a file in it is not where its directory says");
  const header = await read(headerAt, 30);
  if (header.byteLength < 30 || header.readUInt32LE(0) !== SIGNATURES.local)
    throw unreadable("a file in it is not where its directory says");
  const from = headerAt + 30 + header.readUInt16LE(26) + header.readUInt16LE(28);
  if (from + packedBytes > archiveBytes) throw unreadable("a file in it is cut off");
  return packedBytes === 0 ? Buffer.alloc(0) : read(from, packedBytes);
}

function unpacked(packed: Buffer, { method }: Entry, member: string): Promise<Buffer> {
  if (method === STORED) return Promise.resolve(packed);
  if (method !== DEFLATED) throw unreadable("a file in it is packed in a way that is not known here");
  return new Promise((resolve, reject) => {
    inflateRaw(packed, { maxOutputLength: MEMBER_MAX_BYTES }, (error, content) => {
      if (error === null) resolve(content);
      else
        reject("code" in error && error.code === "ERR_BUFFER_TOO_LARGE" ? tooLarge(member) : unreadable(error.message));
    });
  });
}

function unreadable(problem: string): SandlotError {
  return new SandlotError("unsupported_media", { mediaType: "The skill archive", problem });
}

function tooLarge(what: string): SandlotError {
  return new SandlotError("payload_too_large", { what, maxBytes: MEMBER_MAX_BYTES });
}
