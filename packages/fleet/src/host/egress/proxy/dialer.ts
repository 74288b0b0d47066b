/**
 * From a target to a connection: decide by name, resolve, decide by address, connect to that very address.
 *
 * Only this part of the proxy opens connections, so the decisions cannot be bypassed.
 */

import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { canonicalAddress } from "../../../backend/network/addresses.ts";
import { type Authority, writtenAuthority } from "../../../backend/network/host-name.ts";
import type { CompiledPolicy } from "../../../backend/network/policy.ts";
import type { World } from "../../../world/world.ts";
import type { EgressLimits } from "../limits.ts";
import { decideByAddress, decideByName, isRefusal, type Refusal } from "../rules/decide.ts";
import type { Resolver } from "../rules/resolver.ts";

/** The policy refuses. */
export class Refused extends Error {
  override readonly name = "Refused";
  readonly refusal: Refusal;

  constructor(refusal: Refusal) {
    super(`${refusal.host}:${refusal.port} is refused: ${refusal.because}`);
    this.refusal = refusal;
  }
}

/** The policy allows it, but nothing answers there. */
export class Unreachable extends Error {
  override readonly name = "Unreachable";
  readonly status: 502 | 504;

  constructor(status: 502 | 504, message: string) {
    super(message);
    this.status = status;
  }
}

export interface DialerOptions {
  readonly policy: CompiledPolicy;
  readonly resolver: Resolver;
  readonly world: World;
  readonly limits: EgressLimits;
}

export class Dialer {
  readonly #options: DialerOptions;

  constructor(options: DialerOptions) {
    this.#options = options;
  }

  /** Connects within the deadline. The socket may be half-open. Rejects with `Refused` or `Unreachable`. */
  async dial(target: Authority): Promise<Socket> {
    return this.#withDeadline(target, async (signal) => {
      const addresses = await this.#admit(target, signal);
      let last: Unreachable | undefined;
      for (const address of addresses.slice(0, this.#options.limits.addressesMax)) {
        try {
          return await this.#connect(target, address, signal);
        } catch (error) {
          if (!(error instanceof Unreachable) || signal.aborted) throw error;
          last = error;
        }
      }
      throw last ?? new Unreachable(502, `${writtenAuthority(target)} has no address`);
    });
  }

  /** Whether the target may be reached, as far as this is known without connecting. */
  async check(target: Authority): Promise<void> {
    await this.#withDeadline(target, (signal) => this.#admit(target, signal));
  }

  async #admit(target: Authority, signal: AbortSignal): Promise<readonly string[]> {
    const rules = decideByName(this.#options.policy, target);
    if (isRefusal(rules)) throw new Refused(rules);
    const found = await this.#resolve(target, signal);
    const addresses = decideByAddress(target, rules, found, ownAddresses());
    if (isRefusal(addresses)) throw new Refused(addresses);
    return addresses;
  }

  async #resolve({ host }: Authority, signal: AbortSignal): Promise<readonly string[]> {
    if (host.kind === "address") return [host.text];
    try {
      return await abortable(this.#options.resolver(host.text, signal), signal);
    } catch (error) {
      if (signal.aborted) throw error;
      throw new Unreachable(502, `The name ${host.text} could not be resolved (${codeOf(error)}).`);
    }
  }

  async #connect(target: Authority, address: string, signal: AbortSignal): Promise<Socket> {
    const { world, limits } = this.#options;
    const socket = connect({ host: address, port: target.port, allowHalfOpen: true, noDelay: true });
    const attempt = new AbortController();
    const timer = world.timer(limits.addressTimeoutMs, () => attempt.abort());
    try {
      await once(socket, "connect", { signal: AbortSignal.any([signal, attempt.signal]) });
      return socket;
    } catch (error) {
      socket.on("error", () => {});
      socket.destroy();
      if (signal.aborted) throw error;
      const [status, problem] = attempt.signal.aborted
        ? ([504, "no answer"] as const)
        : ([502, codeOf(error)] as const);
      throw new Unreachable(status, `${writtenAuthority(target)} at ${address} cannot be reached (${problem}).`);
    } finally {
      timer.cancel();
    }
  }

  async #withDeadline<Result>(target: Authority, run: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    const { world, limits } = this.#options;
    const deadline = new AbortController();
    const timer = world.timer(limits.dialTimeoutMs, () => deadline.abort());
    try {
      return await run(deadline.signal);
    } catch (error) {
      if (!deadline.signal.aborted) throw error;
      throw new Unreachable(504, `${writtenAuthority(target)} did not answer within ${limits.dialTimeoutMs} ms.`);
    } finally {
      timer.cancel();
    }
  }
}

/** Read each time: addresses change while a proxy lives. */
function ownAddresses(): ReadonlySet<string> {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return new Set(all.flatMap(({ address }) => canonicalAddress(address) ?? []));
}

function abortable<Value>(promise: Promise<Value>, signal: AbortSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

function codeOf(error: unknown): string {
  if (error instanceof Error && "code" in error && typeof error.code === "string") return error.code;
  return error instanceof Error ? error.message : String(error);
}
