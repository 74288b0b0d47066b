import { describe, expect, test } from "vitest";
import type { Slot } from "../../../src/lifecycle/hold/slot.ts";
import { Slots } from "../../../src/lifecycle/hold/slots.ts";

type Named = Pick<Slot, "user" | "thread" | "sandboxId">;
const slotOf = (user: string, thread: string, sandboxId: string) => ({ user, thread, sandboxId }) as Named as Slot;

describe("slots", () => {
  test("are found by thread and by sandbox, and leave every index together", () => {
    const slots = new Slots();
    const slot = slotOf("u", "t", "s1");
    slots.add(slot);
    expect(slots.byThread(slot.user, slot.thread)).toBe(slot);
    expect(slots.byId(slot.sandboxId)).toBe(slot);
    expect(slots.held()).toEqual([slot]);
    slots.remove(slot);
    expect(slots.byThread(slot.user, slot.thread)).toBeUndefined();
    expect(slots.byId(slot.sandboxId)).toBeUndefined();
    expect(slots.size).toBe(0);
  });

  test("are removed exactly: an old one that leaves late takes no later one of its thread along", () => {
    const slots = new Slots();
    const [old, next] = [slotOf("u", "t", "s1"), slotOf("u", "t", "s2")];
    slots.add(old);
    slots.add(next);
    slots.remove(old);
    slots.remove(old);
    expect(slots.byThread(next.user, next.thread)).toBe(next);
    expect(slots.byId(next.sandboxId)).toBe(next);
  });

  test("are removed exactly: also one of the same sandbox in an earlier generation", () => {
    const slots = new Slots();
    const [old, next] = [slotOf("u", "t", "s1"), slotOf("u", "t", "s1")];
    slots.add(next);
    slots.remove(old);
    expect(slots.byThread(next.user, next.thread)).toBe(next);
    expect(slots.byId(next.sandboxId)).toBe(next);
  });

  test("of two users with a thread of the same name are two", () => {
    const slots = new Slots();
    const [a, b] = [slotOf("a", "t", "s1"), slotOf("b", "t", "s2")];
    slots.add(a);
    slots.add(b);
    slots.remove(a);
    expect(slots.byThread(b.user, b.thread)).toBe(b);
    expect(slots.byThread(a.user, a.thread)).toBeUndefined();
  });
});
