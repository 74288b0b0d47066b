/** One result of a check of the machine. */
export interface Finding {
  readonly name: string;
  /** `fail`: sandboxes cannot be made, or not safely. `warn`: they can, with fewer features or less isolation. */
  readonly status: "ok" | "warn" | "fail";
  readonly detail: string;
  /** How to fix it, as a command where there is one. */
  readonly fix?: string;
}
