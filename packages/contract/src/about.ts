/** What a sandbox is like before there is one: for the instructions of a model. */

export interface SandboxAbout {
  readonly network: {
    readonly mode: "none" | "allowlist" | "open";
    /** `host:port`, as configured. */
    readonly allow: readonly string[];
  };
  /** Programs that are there, beside a shell and the usual small tools. Absent where nobody knows before it runs. */
  readonly programs?: readonly string[];
}
