/** The manual checks accept only what the contract's schemas accept, and leave the rest to the schemas. */

import { execOutputSchema, followEndSchema, leaseSchema, spawnedExecSchema } from "@sandlot/contract";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Reader } from "../../src/wire/errors.ts";
import { backgroundExecReply, execEndData, execOutputData, leaseReply } from "../../src/wire/plain-replies.ts";

interface Pair {
  readonly name: string;
  readonly reader: Reader<unknown>;
  readonly schema: Reader<unknown>;
  readonly sample: Readonly<Record<string, unknown>>;
}

const NEWEST = { id: "c1", label: null, takenAt: 1.5, differs: true } as const;

const PAIRS: readonly Pair[] = [
  {
    name: "lease",
    reader: leaseReply,
    schema: leaseSchema,
    sample: {
      leaseId: "l1",
      sandboxId: "s1",
      generation: 1,
      expiresAt: 1.5,
      recovery: { kind: "same", lost: ["processes"], survived: [] },
    },
  },
  {
    name: "lease after a loss",
    reader: leaseReply,
    schema: leaseSchema,
    sample: {
      leaseId: "l1",
      sandboxId: "s1",
      generation: 2,
      expiresAt: 1.5,
      recovery: { kind: "restored", lost: [], survived: ["workspace"], checkpoint: NEWEST },
    },
  },
  {
    name: "background command",
    reader: backgroundExecReply,
    schema: spawnedExecSchema,
    sample: { execId: "e1", pid: null },
  },
  {
    name: "output",
    reader: execOutputData,
    schema: execOutputSchema,
    sample: { stream: "stdout", offset: 0, base64: "aGk=" },
  },
  {
    name: "end",
    reader: execEndData,
    schema: followEndSchema,
    sample: {
      execId: "e1",
      status: "completed",
      exitCode: 0,
      signal: null,
      stdoutBytes: 0,
      stderrBytes: 3,
      durationMs: 1.25,
    },
  },
];

/** Wrong values of a field: every kind of value, and the neighbours of each limit. */
const OTHER_VALUES: readonly unknown[] = [
  ...[undefined, null, true, 0, -1, 1, 0.5, -0.5, 2 ** 53 - 1, 2 ** 53, 1e308, Number.NaN, Number.POSITIVE_INFINITY],
  ...["", "stdout", "stderr", "same", "restored", "empty", "completed", "timed_out", "killed", "lost", [], [""], [1]],
  ...[{}, { kind: "same" }, { kind: "empty", lost: [], survived: [] }, { kind: "other", lost: [], survived: [] }],
  ...[
    { kind: "same", lost: [], survived: [], more: 1 },
    { kind: "same", lost: [1], survived: [] },
    ...[{ ...NEWEST, label: "l", differs: null }, { ...NEWEST, differs: 1 }, { ...NEWEST, more: 1 }, {}].map(
      (checkpoint) => ({ kind: "same", lost: [], survived: [], checkpoint }),
    ),
  ],
];

const outcomeOf = (reader: Reader<unknown>, value: unknown) => {
  try {
    return { value: reader.parse(value) };
  } catch (error) {
    return { refusal: (error as Error).name };
  }
};

describe.each(PAIRS)("$name", ({ reader, schema, sample }) => {
  test("a usual one is accepted as it is", () => {
    expect(reader.parse(sample)).toBe(sample);
    expect(schema.parse(sample)).toEqual(sample);
  });

  test.each([...Object.keys(sample), "more"])("with another %s it has the outcome that the schema gives it", (name) => {
    const { [name]: _, ...without } = sample;
    const others = [without, ...OTHER_VALUES.map((value) => ({ ...sample, [name]: value }))];
    for (const other of others) expect(outcomeOf(reader, other)).toEqual(outcomeOf(schema, other));
  });

  test("anything at all has the outcome that the schema gives it", () => {
    const anything = fc.oneof(
      fc.jsonValue(),
      fc.jsonValue().map((value) => ({ ...sample, ...(value as object) })),
    );
    fc.assert(
      fc.property(anything, (value) => {
        expect(outcomeOf(reader, value)).toEqual(outcomeOf(schema, value));
      }),
    );
  });
});
