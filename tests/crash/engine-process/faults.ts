/**
 * How long each call takes, and which ones fail. Drawn from the seed, but with real processes the machine decides the
 * order of the calls, and so which call gets which draw.
 */

import { SandlotError } from "@sandlot/contract";
import type { Random } from "../../simulation/schedule/random.ts";
import { BACKEND } from "../settings.ts";
import type { Method } from "../wire.ts";

export interface Plan {
  readonly delayMs: number;
  /** Fails before it has an effect. */
  readonly failsBefore: boolean;
  /** Takes effect and reports a failure. */
  readonly failsAfter: boolean;
}

interface Chances {
  /** The usual delay, both ends included. */
  readonly ms: readonly [number, number];
  readonly slow?: { readonly chance: number; readonly ms: readonly [number, number] };
  readonly failsBefore?: number;
  readonly failsAfter?: number;
}

const QUICK: Chances = { ms: [0, 2] };
const AT_ONCE: Chances = { ms: [0, 0] };

const CHANCES: Partial<Record<Method, Chances>> = {
  create: { ms: [4, 40], slow: { chance: 0.04, ms: [300, 1_900] }, failsBefore: 0.02, failsAfter: 0.03 },
  destroy: { ms: [2, 30], slow: { chance: 0.04, ms: [300, 1_900] }, failsBefore: 0.02, failsAfter: 0.03 },
  rebind: { ms: [0, 8], failsBefore: 0.01, failsAfter: 0.03 },
  attach: { ms: [0, 4], failsBefore: 0.01 },
  moveIn: { ms: [0, 4], failsAfter: 0.02 },
  makeIn: { ms: [0, 4], failsAfter: 0.02 },
  moveHome: { ms: [0, 6], failsBefore: 0.01, failsAfter: 0.02 },
  purge: { ms: [0, 6], failsAfter: 0.02 },
  list: { ms: [0, 3], failsBefore: 0.01 },
  hello: AT_ONCE,
  detach: AT_ONCE,
  announce: AT_ONCE,
  settled: AT_ONCE,
  doubted: AT_ONCE,
};

export class Faults {
  readonly #random: Random;
  #healed = false;
  #isUsed = false;

  constructor(random: Random) {
    this.#random = random;
  }

  heal(): void {
    this.#healed = true;
  }

  /** Whether an engine event gets lost. */
  losesEvent(): boolean {
    return !this.#healed && this.#random.chance(0.05);
  }

  /** Lists succeed until the first create: a fleet that opens a new store needs one, and rightly fails without it. */
  plan(method: Method): Plan {
    const random = this.#random;
    if (method === "create") this.#isUsed = true;
    const { ms, slow, failsBefore = 0, failsAfter = 0 } = CHANCES[method] ?? QUICK;
    if (this.#healed) return { delayMs: random.between(...ms), failsBefore: false, failsAfter: false };
    const isSlow = slow !== undefined && random.chance(slow.chance);
    return {
      delayMs: random.between(...(isSlow ? slow.ms : ms)),
      failsBefore: random.chance(failsBefore) && (this.#isUsed || method !== "list"),
      failsAfter: random.chance(failsAfter),
    };
  }
}

export function faultOf(method: Method): SandlotError {
  if (method === "create" || method === "list") {
    return new SandlotError("create_failed", { backend: BACKEND, problem: `${method} failed, as planned` });
  }
  return new SandlotError("sandbox_unreachable", {
    sandboxId: "",
    problem: `${method} failed, as planned`,
    retryAfterMs: 50,
  });
}
