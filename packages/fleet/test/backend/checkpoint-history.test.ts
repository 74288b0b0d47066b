import { describe, expect, test } from "vitest";
import { type HistoryEntry, resolveDirection } from "../../src/backend/checkpoint-history.ts";

/** A history that takes back and brings back as the fleet does. */
class History {
  readonly #entries = new Map<string, HistoryEntry>();
  #head: HistoryEntry | undefined;
  #count = 0;

  take(tree: string): void {
    if (this.#head?.tree !== tree) this.#add({ tree, restoredFrom: null, as: null });
  }

  /** Of the present, although nothing has changed. */
  label(): void {
    if (this.#head !== undefined) this.#add({ tree: this.#head.tree, restoredFrom: null, as: null });
  }

  restore(id: string, as: "restore" | "undo" | "redo"): void {
    const target = this.#entries.get(id);
    if (target !== undefined) this.#add({ tree: target.tree, restoredFrom: id, as });
  }

  go(direction: "undo" | "redo"): string | null {
    const target = resolveDirection(this.#head, (id) => this.#entries.get(id), direction);
    if (target !== null) this.restore(target.id, direction);
    return target?.tree ?? null;
  }

  first(): string {
    return [...this.#entries.keys()][0] ?? "";
  }

  remove(id: string): void {
    this.#entries.delete(id);
  }

  #add(entry: Pick<HistoryEntry, "tree" | "restoredFrom" | "as">): void {
    this.#count += 1;
    this.#head = { id: `e${this.#count}`, parent: this.#head?.id ?? null, ...entry };
    this.#entries.set(this.#head.id, this.#head);
  }
}

function historyOf(...trees: readonly string[]): History {
  const history = new History();
  for (const tree of trees) history.take(tree);
  return history;
}

describe("undo and redo in a history", () => {
  test("go back step by step, and return the same way", () => {
    const history = historyOf("a", "b", "c");
    expect([history.go("undo"), history.go("undo"), history.go("undo")]).toEqual(["b", "a", null]);
    expect([history.go("redo"), history.go("redo"), history.go("redo")]).toEqual(["b", "c", null]);
    expect(history.go("undo")).toBe("b");
    expect(history.go("redo")).toBe("c");
  });

  test("a change after an undo ends what can be redone, and can be undone", () => {
    const history = historyOf("a", "b");
    history.go("undo");
    history.take("x");
    expect(history.go("redo")).toBeNull();
    expect(history.go("undo")).toBe("a");
    expect(history.go("undo")).toBeNull();
    expect(history.go("redo")).toBe("x");
  });

  test("an undo takes back a restore", () => {
    const history = historyOf("a", "b", "c");
    history.restore(history.first(), "restore");
    expect(history.go("undo")).toBe("c");
    expect(history.go("undo")).toBe("b");
  });

  test("a redo sees through checkpoints that changed nothing", () => {
    const history = historyOf("a", "b", "c");
    history.go("undo");
    history.label();
    history.go("undo");
    history.label();
    expect([history.go("redo"), history.go("redo"), history.go("redo")]).toEqual(["b", "c", null]);
  });

  test("nothing is found in an empty or a cut history", () => {
    expect(new History().go("undo")).toBeNull();
    const history = historyOf("a", "b");
    history.remove("e1");
    expect(history.go("undo")).toBeNull();
  });
});
