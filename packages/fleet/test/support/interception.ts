/** A thin decorator around a backend or a store: every call goes through, unless a test intercepts it. */

type Method = (...args: never[]) => unknown;
type AnyCall = (...args: unknown[]) => unknown;
type MethodsOf<T> = { [Name in keyof T]: T[Name] extends Method ? Name : never }[keyof T];
type ArgumentsOf<T, Name extends keyof T> = T[Name] extends Method ? Parameters<T[Name]> : never;
type AnswerOf<T, Name extends keyof T> = T[Name] extends Method ? ReturnType<T[Name]> : never;

export type Interceptor<T, Name extends keyof T> = (
  proceed: () => AnswerOf<T, Name>,
  ...args: ArgumentsOf<T, Name>
) => AnswerOf<T, Name>;

export interface Gate {
  /** How many calls have arrived. */
  readonly arrived: number;
  /** Releases these calls and all later ones. */
  open(): void;
}

export interface HangOptions {
  /** `after`: the call takes effect, only its response is missing. */
  readonly when?: "before" | "after";
  /** Ignores an abort. */
  readonly deaf?: boolean;
}

export class Interception<T extends object> {
  readonly proxy: T;
  readonly #calls = new Map<PropertyKey, unknown[][]>();
  readonly #interceptors = new Map<PropertyKey, Interceptor<T, keyof T>>();
  #isCut = false;

  constructor(inner: T) {
    this.proxy = new Proxy(inner, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== "function") return value;
        return (...args: unknown[]) => this.#call(name, (value as AnyCall).bind(target), args);
      },
    });
  }

  on<Name extends MethodsOf<T>>(name: Name, interceptor: Interceptor<T, Name>): () => void {
    const mine = interceptor as unknown as Interceptor<T, keyof T>;
    this.#interceptors.set(name, mine);
    return () => {
      if (this.#interceptors.get(name) === mine) this.#interceptors.delete(name);
    };
  }

  fail<Name extends MethodsOf<T>>(name: Name, error: unknown): () => void {
    return this.on(name, (() => Promise.reject(error)) as unknown as Interceptor<T, Name>);
  }

  /** Every call from now on fails like this. */
  failAll(error: () => unknown): () => void {
    const failing = () => Promise.reject(error());
    const names = new Set<MethodsOf<T>>();
    for (let at: object | null = this.proxy; at !== null && at !== Object.prototype; at = Object.getPrototypeOf(at))
      for (const name of Object.getOwnPropertyNames(at)) names.add(name as MethodsOf<T>);
    for (const passing of ["constructor", "watch", "close"]) names.delete(passing as MethodsOf<T>);
    const undo = [...names].map((name) => this.on(name, failing as unknown as Interceptor<T, typeof name>));
    return () => {
      for (const stop of undo) stop();
    };
  }

  hang<Name extends MethodsOf<T>>(name: Name, options: HangOptions = {}): Gate {
    let open: () => void = () => undefined;
    const opened = new Promise<void>((resolve) => {
      open = resolve;
    });
    let arrived = 0;
    const waiting = async (proceed: () => unknown, ...args: readonly unknown[]) => {
      const early = options.when === "after" ? await proceed() : undefined;
      arrived += 1;
      const signal = options.deaf === true ? undefined : args.find((argument) => argument instanceof AbortSignal);
      await Promise.race([opened, aborted(signal)]);
      return options.when === "after" ? early : proceed();
    };
    const stop = this.on(name, waiting as unknown as Interceptor<T, Name>);
    return {
      get arrived() {
        return arrived;
      },
      open() {
        stop();
        open();
      },
    };
  }

  /** The process behind it is gone: no request leaves, no response comes. */
  cut(): void {
    this.#isCut = true;
  }

  callsOf<Name extends MethodsOf<T>>(name: Name): readonly ArgumentsOf<T, Name>[] {
    return (this.#calls.get(name) ?? []) as ArgumentsOf<T, Name>[];
  }

  forgetCalls(): void {
    this.#calls.clear();
  }

  get callCount(): number {
    return [...this.#calls.values()].reduce((sum, calls) => sum + calls.length, 0);
  }

  #call(name: PropertyKey, method: AnyCall, args: unknown[]): unknown {
    if (this.#isCut) return name === "watch" ? () => undefined : new Promise(() => undefined);
    this.#calls.set(name, [...(this.#calls.get(name) ?? []), args]);
    const interceptor = this.#interceptors.get(name) as AnyCall | undefined;
    return interceptor === undefined ? method(...args) : interceptor(() => method(...args), ...args);
  }
}

function aborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) => {
    if (signal?.aborted === true) reject(signal.reason);
    signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}
