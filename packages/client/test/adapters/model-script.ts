/**
 * A model whose next move the test decides while the agent runs. The framework's fake model calls `turn` for each
 * response; the test, on the other side, makes tool calls and gets their results, as if it were the model.
 */

export type Move =
  | { readonly type: "call"; readonly name: string; readonly input: Record<string, unknown> }
  | { readonly type: "end" }
  | { readonly type: "fail"; readonly error: Error };

export class ModelScript<Result> {
  #moves: Move[] = [];
  #wanted: ((move: Move) => void) | null = null;
  #awaited: { resolve: (result: Result) => void; reject: (error: unknown) => void } | null = null;
  #over: unknown = null;

  /** Called by the fake model with the last call's result (`null` at the beginning); returns the next move. */
  async turn(result: Result | null): Promise<Move> {
    if (result !== null) {
      this.#awaited?.resolve(result);
      this.#awaited = null;
    }
    const next = this.#moves.shift();
    if (next !== undefined) return next;
    return new Promise((resolve) => {
      this.#wanted = resolve;
    });
  }

  /** Lets the agent call a tool; resolves with its model's input about it. */
  call(name: string, input: Record<string, unknown>): Promise<Result> {
    if (this.#over !== null) return Promise.reject(this.#over);
    return new Promise((resolve, reject) => {
      this.#awaited = { resolve, reject };
      this.#move({ type: "call", name, input });
    });
  }

  end(): void {
    this.#move({ type: "end" });
  }

  fail(error: Error): void {
    this.#move({ type: "fail", error });
  }

  /** The agent's run is over, and no response will come. */
  watch(run: Promise<unknown>): void {
    run.then(
      () => this.#finish(new Error("the run ended")),
      (error: unknown) => this.#finish(error),
    );
  }

  #finish(error: unknown): void {
    this.#over = error;
    this.#awaited?.reject(error);
  }

  #move(move: Move): void {
    const wanted = this.#wanted;
    this.#wanted = null;
    if (wanted === null) this.#moves.push(move);
    else wanted(move);
  }
}
