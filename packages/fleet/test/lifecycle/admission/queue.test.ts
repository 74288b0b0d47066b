import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FairQueue } from "../../../src/lifecycle/admission/queue.ts";

type User = Parameters<FairQueue<number>["push"]>[0];
const user = (name: string) => name as User;

/** Serves the queue as admission does, one ticket per turn. */
function serveAll(queue: FairQueue<string>): string[] {
  const served: string[] = [];
  while (queue.size > 0) {
    const head = queue.heads()[0];
    if (head === undefined) throw new Error("A queue that is not empty has a head.");
    queue.rotate(head.user);
    expect(queue.remove(head.user, head.ticket)).toBe(true);
    served.push(head.ticket);
  }
  return served;
}

describe("the fair queue", () => {
  test("lets users take turns, and serves each one's callers in their order", () => {
    const queue = new FairQueue<string>();
    for (const ticket of ["a1", "a2", "a3"]) queue.push(user("a"), ticket);
    queue.push(user("b"), "b1");
    queue.push(user("c"), "c1");
    queue.push(user("b"), "b2");
    expect(serveAll(queue)).toEqual(["a1", "b1", "c1", "a2", "b2", "a3"]);
  });

  test("lets a ticket leave once", () => {
    const queue = new FairQueue<string>();
    queue.push(user("a"), "a1");
    expect(queue.remove(user("a"), "a1")).toBe(true);
    expect(queue.remove(user("a"), "a1")).toBe(false);
    expect(queue.remove(user("b"), "a1")).toBe(false);
    expect(queue.size).toBe(0);
    expect(queue.heads()).toEqual([]);
  });

  test("gives a user who had a turn the next one after everybody else", () => {
    const queue = new FairQueue<string>();
    queue.push(user("a"), "a1");
    queue.push(user("b"), "b1");
    queue.push(user("a"), "a2");
    queue.rotate(user("a"));
    expect(queue.heads().map(({ ticket }) => ticket)).toEqual(["b1", "a1"]);
    queue.rotate(user("nobody"));
    expect(queue.size).toBe(3);
  });

  test("serves every ticket exactly once, in each user's order, and nobody waits for more than one turn of each other", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom("a", "b", "c", "d"), { maxLength: 40 }), (pushes) => {
        const queue = new FairQueue<string>();
        const tickets = pushes.map((name, index) => `${name}${index}`);
        for (const [index, name] of pushes.entries()) queue.push(user(name), tickets[index]!);
        expect(queue.size).toBe(tickets.length);
        const served = serveAll(queue);
        expect([...served].sort()).toEqual([...tickets].sort());
        for (const name of ["a", "b", "c", "d"]) {
          const own = (list: readonly string[]) => list.filter((ticket) => ticket.startsWith(name));
          expect(own(served)).toEqual(own(tickets));
        }
        // While two users both wait, neither is served twice in a row.
        for (const [index, ticket] of served.slice(0, -1).entries()) {
          const rest = served.slice(index + 1);
          const others = rest.some((other) => other[0] !== ticket[0]);
          if (others) expect(rest[0]?.[0] === ticket[0]).toBe(false);
        }
      }),
    );
  });

  test("keeps its size right under any pushes and removals", () => {
    const step = fc.record({
      push: fc.boolean(),
      user: fc.constantFrom("a", "b"),
      ticket: fc.integer({ max: 5, min: 0 }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const queue = new FairQueue<number>();
        const model: { user: string; ticket: number }[] = [];
        for (const { push, user: name, ticket } of steps) {
          const at = model.findIndex((one) => one.user === name && one.ticket === ticket);
          if (push) {
            queue.push(user(name), ticket);
            model.push({ user: name, ticket });
          } else {
            expect(queue.remove(user(name), ticket)).toBe(at !== -1);
            if (at !== -1) model.splice(at, 1);
          }
          expect(queue.size).toBe(model.length);
          expect(queue.heads()).toHaveLength(new Set(model.map((one) => one.user)).size);
        }
      }),
    );
  });
});
