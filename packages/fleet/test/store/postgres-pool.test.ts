/** Which connections to PostgreSQL outlive the failure of another one. */

import { expect, it } from "vitest";
import { type Connection, ServerFailure } from "../../src/store/postgres/connection.ts";
import { ConnectionPool } from "../../src/store/postgres/connection-pool.ts";

const NEVER = new AbortController().signal;
const failure = (code: string | null) => new ServerFailure({ problem: "no answer", code });

function stage() {
  const state = { now: 0 };
  const opened: Connection[] = [];
  const pool = new ConnectionPool({
    max: 8,
    place: "test",
    monotonicMs: () => state.now,
    async open() {
      const connection = {
        isUsable: true,
        query: async () => [],
        destroy: () => Object.assign(connection, { isUsable: false }),
      };
      opened.push(connection);
      return connection;
    },
  });
  /** A call that ends when it is told to. */
  const call = async () => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const ended = pool.use(NEVER, () => promise);
    ended.catch(() => undefined);
    // Until it has its connection.
    for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
    const settled = () => ended.catch(() => undefined);
    return {
      answer() {
        resolve();
        return settled();
      },
      fail(code: string | null = null) {
        reject(failure(code));
        return settled();
      },
    };
  };
  const usable = () => opened.map(({ isUsable }) => isUsable);
  return { state, pool, call, usable };
}

it("a call without an answer leaves the connections that have answered since it began", async () => {
  const { state, call, usable } = stage();
  const [failing, answered, former] = [await call(), await call(), await call()];
  state.now = 20;
  await answered.answer();
  await former.answer();
  state.now = 40;
  await failing.fail();
  expect(usable()).toEqual([false, true, true]);
});

it("connections that have stood idle since before the failed call go with it", async () => {
  const { state, call, usable } = stage();
  const [one, other] = [await call(), await call()];
  await one.answer();
  await other.answer();
  state.now = 10;
  const failing = await call();
  state.now = 20;
  await failing.fail();
  expect(usable()).toEqual([false, false]);
});

it("a statement that fails costs no connection", async () => {
  const { call, usable } = stage();
  const [one, other] = [await call(), await call()];
  await one.answer();
  await other.fail("40P01");
  expect(usable()).toEqual([true, true]);
});
