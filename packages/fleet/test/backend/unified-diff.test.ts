import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { unifiedDiff } from "../../src/backend/unified-diff.ts";

const folder = mkdtempSync(join(tmpdir(), "sandlot-diff-"));
afterAll(() => rmSync(folder, { recursive: true }));

const bytes = (text: string) => new TextEncoder().encode(text);

/** What `patch` makes of the older text: an independent judge of the diff. */
function patched(before: string, diff: string): string {
  writeFileSync(join(folder, "file"), before);
  if (diff !== "")
    execFileSync("git", ["apply", "--unidiff-zero", "--whitespace=nowarn", "-"], { cwd: folder, input: diff });
  return execFileSync("cat", [join(folder, "file")], { encoding: "utf8" });
}

describe("a unified diff", () => {
  test("has three lines of context around each change", () => {
    const before = Array.from({ length: 20 }, (_, line) => `${line}\n`).join("");
    const after = before.replace("10\n", "ten\n");
    expect(unifiedDiff("file", bytes(before), bytes(after))).toBe(
      "--- a/file\n+++ b/file\n@@ -8,7 +8,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n",
    );
  });

  test("names the missing end of the last line", () => {
    expect(unifiedDiff("f", bytes("a\n"), bytes("a"))).toContain("+a\n\\ No newline at end of file\n");
  });

  test("keeps a hostile name on its own line", () => {
    expect(unifiedDiff("a\n+planted", bytes("1\n"), bytes("2\n"))?.split("\n")[0]).toBe('--- "a/a\\n+planted"');
  });

  test("is null for what is no text, and empty for equal texts", () => {
    expect(unifiedDiff("f", new Uint8Array([0x61, 0]), bytes("a"))).toBeNull();
    expect(unifiedDiff("f", new Uint8Array([0xff]), bytes("a"))).toBeNull();
    expect(unifiedDiff("f", new Uint8Array(1024 * 1024 + 1).fill(0x61), bytes("a"))).toBeNull();
    expect(unifiedDiff("f", bytes("a"), bytes("a"))).toBe("");
  });

  test("is what git applies to get the newer text", () => {
    const line = fc.constantFrom("a\n", "b\n", "c\n", "d\n", "\n");
    const text = fc.array(line, { maxLength: 25 }).map((lines) => lines.join(""));
    const judge = (before: string, after: string) =>
      expect(patched(before, unifiedDiff("file", bytes(before), bytes(after)) ?? "no diff")).toBe(after);
    const property = fc.property(text, text, (a, b) => {
      if (a !== "" && b !== "") judge(a, b);
    });
    fc.assert(property, { numRuns: 60 });
  });

  test("does not search hostile texts for long", () => {
    const a = Array.from({ length: 60_000 }, (_, index) => `${index % 7}\n`).join("");
    const b = Array.from({ length: 60_000 }, (_, index) => `${index % 11}\n`).join("");
    const diff = unifiedDiff("f", bytes(a), bytes(b)) ?? "";
    expect(diff.match(/^[-+]\d/gm)?.length).toBeGreaterThan(1_000);
  });
});
