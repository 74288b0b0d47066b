/** A description of a sandbox before it exists: for the instructions of a model. */

export interface SandboxAbout {
  readonly network: {
    readonly mode: "none" | "allowlist" | "open";
    /** `host:port`, as configured. */
    readonly allow: readonly string[];
  };
  /** Installed programs, beside a shell and the usual small tools. Absent if unknown before the sandbox runs. */
  readonly programs?: readonly string[];
}
