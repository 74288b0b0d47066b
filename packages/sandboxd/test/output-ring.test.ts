import { fc, test } from "@fast-check/vitest";
import { describe, expect } from "vitest";
import { OutputRing } from "../src/exec/output-ring.ts";

/** Sizes around every limit of the ring: one byte, the first block, a block, the whole. */
const MAX = 200_000;
const size = fc.oneof(
  fc.integer({ min: 0, max: 10 }),
  fc.constantFrom(4_095, 4_096, 4_097, 65_535, 65_536, 65_537, MAX - 1, MAX, MAX + 1, 3 * MAX),
);

describe("the ring", () => {
  test.prop([fc.array(size, { maxLength: 12 }), fc.nat(4 * MAX), fc.nat(MAX)])(
    "holds the last bytes, by offset, and knows what it dropped",
    (sizes, offset, count) => {
      const ring = new OutputRing(MAX);
      let all = Buffer.alloc(0);
      for (const [index, length] of sizes.entries()) {
        const chunk = Buffer.alloc(length, index + 1);
        ring.write(chunk);
        chunk.fill(0);
        all = Buffer.concat([all, Buffer.alloc(length, index + 1)]);
        const start = Math.max(0, all.length - MAX);
        expect([ring.startOffset, ring.endOffset]).toEqual([start, all.length]);
      }
      const held = ring.read(offset, count);
      const from = Math.min(Math.max(offset, ring.startOffset), all.length);
      expect(held.offset).toBe(from);
      expect(held.bytes.equals(all.subarray(from, from + count))).toBe(true);
      expect(ring.text()).toEqual({ text: all.toString("utf8", ring.startOffset), droppedBytes: ring.startOffset });
    },
  );

  test("notifies its listeners of each write and of the end", () => {
    const ring = new OutputRing(10);
    let calls = 0;
    const stop = ring.listen(() => calls++);
    ring.write(Buffer.from("a"));
    ring.close();
    ring.close();
    stop();
    expect(calls).toBe(2);
    expect(ring.closed).toBe(true);
  });
});
