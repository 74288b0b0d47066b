/** What a look at the machine found. */
export interface Finding {
  readonly name: string;
  /** `fail`: sandboxes cannot be made, or not safely. `warn`: they can, with less than there could be. */
  readonly status: "ok" | "warn" | "fail";
  readonly detail: string;
  /** What to do about it, as a command where there is one. */
  readonly fix?: string;
}
