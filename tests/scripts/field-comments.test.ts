/** Descriptions of schemas become comments in declarations, whose text the compiler writes without them. */

import { describe, expect, it } from "vitest";
import { z } from "zod";
import { withFieldComments } from "../../scripts/field-comments.mjs";

const inner = z.object({ bytes: z.int().describe("How many."), plain: z.string() });
const schemas = {
  resultSchema: z.object({
    exitCode: z.int().nullable().describe("`null` when it did not exit."),
    name: z.string(),
    parts: z.array(inner).optional().describe("Pieces */ of it."),
  }),
};

const DECLARATION = `import { z } from "zod";
export declare const resultSchema: z.ZodObject<{
    exitCode: z.ZodNullable<z.ZodInt>;
    name: z.ZodString;
    parts: z.ZodOptional<z.ZodArray<z.ZodObject<{
        bytes: z.ZodInt;
        plain: z.ZodString;
    }, z.core.$strip>>>;
}, z.core.$strip>;
export declare const otherSchema: z.ZodObject<{
    exitCode: z.ZodInt;
}, z.core.$strip>;
`;

describe("field comments", () => {
  it("stand above the fields that have a description, also of objects inside, and nowhere else", () => {
    const { text, added } = withFieldComments(DECLARATION, schemas);
    expect(added).toBe(3);
    expect(text).toBe(
      DECLARATION.replace("    exitCode: z.ZodN", "    /** `null` when it did not exit. */\n    exitCode: z.ZodN")
        .replace("    parts:", "    /** Pieces *\\/ of it. */\n    parts:")
        .replace("        bytes:", "        /** How many. */\n        bytes:"),
    );
  });

  it("are not added twice", () => {
    const once = withFieldComments(DECLARATION, schemas).text;
    expect(withFieldComments(once, schemas)).toEqual({ text: once, added: 0 });
  });
});
