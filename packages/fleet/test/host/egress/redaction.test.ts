import { Readable } from "node:stream";
import fc from "fast-check";
import { expect, it } from "vitest";
import { Redactor } from "../../../src/host/egress/proxy/redaction.ts";

async function redact(values: readonly string[], chunks: readonly string[]): Promise<string> {
  const stream = Readable.from(chunks.map((chunk) => Buffer.from(chunk))).pipe(new Redactor(values));
  return Buffer.concat((await stream.toArray()) as Buffer[]).toString();
}

it("finds a value across any cut into chunks", async () => {
  const secret = "abcabcabd";
  const text = `ab${secret}abcabc${secret}${secret}abcabcab`;
  const wanted = text.replaceAll(secret, "*".repeat(secret.length));
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(text.length), { maxLength: 12 }), async (cuts) => {
      const ends = [0, ...cuts.sort((a, b) => a - b), text.length];
      const chunks = ends.slice(1).map((end, index) => text.slice(ends[index], end));
      expect(await redact([secret], chunks)).toBe(wanted);
    }),
    { numRuns: 300 },
  );
});

it("holds nothing back that cannot become the value", async () => {
  const redactor = new Redactor(["secret-value"]);
  redactor.write("data: hello\n");
  expect((redactor.read() as Buffer).toString()).toBe("data: hello\n");
  redactor.write("data: sec");
  expect((redactor.read() as Buffer).toString()).toBe("data: ");
  redactor.write("ond");
  expect((redactor.read() as Buffer).toString()).toBe("second");
});
