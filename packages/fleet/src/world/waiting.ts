/** Waits with an exit. Every wait of the fleet has a signal or a deadline. */

import type { Timer, World } from "./world.ts";

/** Resolves after `ms`; rejects with the signal's reason when that fires first. */
export function sleep(
  world: World,
  ms: number,
  signal?: AbortSignal,
  options?: { background?: boolean },
): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason);
    const onAbort = () => {
      timer.cancel();
      reject(signal?.reason);
    };
    const timer = world.timer(
      ms,
      () => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      },
      options,
    );
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** Follows `promise`, but stops waiting when the signal fires. The promise itself goes on. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    // The promise is always followed: otherwise it could become an unhandled rejection.
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    const end = () => signal.removeEventListener("abort", onAbort);
    promise.then(
      (value) => {
        end();
        resolve(value);
      },
      (error: unknown) => {
        end();
        reject(error);
      },
    );
  });
}

/** Waits for `promise`, at most this long, or until the signal: then it returns `undefined` and the promise goes on. */
export function atMost<T>(world: World, ms: number, promise: Promise<T>, signal?: AbortSignal): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const end = () => {
      timer.cancel();
      signal?.removeEventListener("abort", giveUp);
    };
    const giveUp = () => {
      end();
      resolve(undefined);
    };
    const timer = world.timer(ms, giveUp);
    signal?.addEventListener("abort", giveUp, { once: true });
    if (signal?.aborted === true) giveUp();
    promise.then(
      (value) => {
        end();
        resolve(value);
      },
      (error: unknown) => {
        end();
        reject(error);
      },
    );
  });
}

/** Runs `work` for each, at most `max` at a time. Rejects with the first failure, when all have ended. */
export async function sideBySide<T>(
  items: readonly T[],
  max: number,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  const left = items.values();
  const walk = async () => {
    for (const item of left) await work(item);
  };
  const ended = await Promise.allSettled(Array.from({ length: Math.min(max, items.length) }, walk));
  const failed = ended.find((result) => result.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

/** Background work that must have ended before a fleet has closed. */
export class UnderWay {
  readonly #works = new Set<Promise<unknown>>();

  add<T>(work: Promise<T>): Promise<T> {
    this.#works.add(work);
    const ended = () => this.#works.delete(work);
    work.then(ended, ended);
    return work;
  }

  /** Resolves when all of it has ended, including work begun meanwhile. */
  async idle(): Promise<void> {
    while (this.#works.size > 0) await Promise.allSettled(this.#works);
  }
}

/**
 * Runs work that may take long as long as it goes on: aborts it when it has called `progressed` for `quietMs` no more.
 */
export async function whileProgressing<T>(
  world: World,
  quietMs: number,
  outer: AbortSignal | undefined,
  late: () => unknown,
  work: (signal: AbortSignal, progressed: () => void) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const onOuter = () => controller.abort(outer?.reason);
  if (outer?.aborted === true) throw outer.reason;
  outer?.addEventListener("abort", onOuter, { once: true });
  let lastAt = world.monotonicMs();
  const look = (): Timer => {
    const leftMs = lastAt + quietMs - world.monotonicMs();
    return world.timer(Math.max(leftMs, 1), () => {
      if (world.monotonicMs() - lastAt >= quietMs) controller.abort(late());
      else timer = look();
    });
  };
  let timer = look();
  const progressed = () => {
    lastAt = world.monotonicMs();
  };
  try {
    return await abortable(work(controller.signal, progressed), controller.signal);
  } finally {
    outer?.removeEventListener("abort", onOuter);
    timer.cancel();
  }
}

/**
 * Runs `work` with its own deadline, linked to an outer signal. When time runs out, `work`'s signal is aborted with
 * `late()`, and so is the wait: work that ignores its signal cannot block its caller.
 */
export async function within<T>(
  world: World,
  ms: number,
  outer: AbortSignal | undefined,
  late: () => unknown,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const onOuter = () => controller.abort(outer?.reason);
  if (outer?.aborted === true) throw outer.reason;
  outer?.addEventListener("abort", onOuter, { once: true });
  const timer = world.timer(ms, () => controller.abort(late()));
  try {
    return await abortable(work(controller.signal), controller.signal);
  } finally {
    timer.cancel();
    outer?.removeEventListener("abort", onOuter);
  }
}
