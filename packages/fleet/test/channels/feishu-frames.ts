/** The binary frames of Feishu's long connection (`pbbp2.Frame`), as far as tests need them. */

export interface Frame {
  readonly seqId: number;
  readonly logId: number;
  readonly service: number;
  readonly method: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly payload: Buffer;
}

export function encodeFrame({ seqId, logId, service, method, headers, payload }: Frame): Buffer {
  const numbers = [seqId, logId, service, method].map((value, index) =>
    Buffer.concat([varint((index + 1) << 3), varint(value)]),
  );
  const pairs = Object.entries(headers).map(([key, value]) => bytes(5, Buffer.concat([text(1, key), text(2, value)])));
  return Buffer.concat([...numbers, ...pairs, bytes(8, payload)]);
}

export function decodeFrame(frame: Buffer): Pick<Frame, "headers" | "payload"> {
  const headers: Record<string, string> = {};
  let payload = Buffer.alloc(0);
  for (const { field, content } of fields(frame)) {
    if (field === 8) payload = Buffer.from(content);
    if (field !== 5) continue;
    const [key, value] = [...fields(content)].map((part) => part.content.toString());
    headers[key ?? ""] = value ?? "";
  }
  return { headers, payload };
}

function* fields(buffer: Buffer): Generator<{ field: number; content: Buffer }> {
  let at = 0;
  const read = () => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = buffer[at++] ?? 0;
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < buffer.length) {
    const tag = read();
    const value = read();
    if ((tag & 7) !== 2) continue;
    yield { field: tag >> 3, content: buffer.subarray(at, at + value) };
    at += value;
  }
}

function varint(value: number): Buffer {
  const out: number[] = [];
  let rest = value;
  do {
    out.push((rest % 128) + (rest > 127 ? 128 : 0));
    rest = Math.floor(rest / 128);
  } while (rest > 0);
  return Buffer.from(out);
}

function bytes(field: number, content: Buffer): Buffer {
  return Buffer.concat([varint((field << 3) | 2), varint(content.length), content]);
}

function text(field: number, value: string): Buffer {
  return bytes(field, Buffer.from(value));
}
