import { isoTime } from "@sandlot/contract";
/** The few ASN.1 types of a certificate, in DER. Only encoding, and only the types in use. */

export function sequence(...parts: readonly Buffer[]): Buffer {
  return tagged(0x30, ...parts);
}

export function set(...parts: readonly Buffer[]): Buffer {
  return tagged(0x31, ...parts);
}

/** `[n] EXPLICIT`, or the constructed form of `[n] IMPLICIT`. */
export function context(number: number, ...parts: readonly Buffer[]): Buffer {
  return tagged(0xa0 | number, ...parts);
}

/** `[n] IMPLICIT` of a primitive type. */
export function contextPrimitive(number: number, content: Buffer): Buffer {
  return tagged(0x80 | number, content);
}

/** A positive integer, from its bytes. */
export function integer(bytes: Buffer): Buffer {
  const trimmed = bytes.subarray(
    Math.max(
      0,
      bytes.findIndex((byte) => byte !== 0),
    ),
  );
  return tagged(0x02, ((trimmed[0] ?? 0) & 0x80) === 0 ? trimmed : Buffer.concat([Buffer.from([0]), trimmed]));
}

export function boolean(value: boolean): Buffer {
  return tagged(0x01, Buffer.from([value ? 0xff : 0]));
}

export function octetString(content: Buffer): Buffer {
  return tagged(0x04, content);
}

export function bitString(content: Buffer, unusedBits = 0): Buffer {
  return tagged(0x03, Buffer.from([unusedBits]), content);
}

export function utf8String(text: string): Buffer {
  return tagged(0x0c, Buffer.from(text, "utf8"));
}

export function objectIdentifier(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  return tagged(0x06, Buffer.from([first * 40 + second, ...rest.flatMap(base128)]));
}

/** Precision is a second; until 2049 in the short form, as certificates require. */
export function time(wallMs: number): Buffer {
  const digits = isoTime(wallMs).replace(/[-:T]|\.\d+/g, "");
  const year = Number(digits.slice(0, 4));
  return year < 2_050 ? tagged(0x17, Buffer.from(digits.slice(2))) : tagged(0x18, Buffer.from(digits));
}

function tagged(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([tag, ...lengthBytes(content.length)]), content]);
}

function lengthBytes(length: number): readonly number[] {
  if (length < 0x80) return [length];
  const bytes: number[] = [];
  for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest % 256);
  return [0x80 | bytes.length, ...bytes];
}

function base128(value: number): readonly number[] {
  const digits = [value % 128];
  for (let rest = Math.floor(value / 128); rest > 0; rest = Math.floor(rest / 128)) digits.unshift(0x80 | (rest % 128));
  return digits;
}
