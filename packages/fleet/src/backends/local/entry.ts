/** The `local` backend in the registry. */

import type { BackendEntry } from "../../backend/entry.ts";
import { type LocalConfig, localSchema } from "./config.ts";
import { parseRef } from "./objects/engine-ref.ts";

export const LOCAL = {
  name: "local",
  about: "this machine, with Linux namespaces",
  configSchema: localSchema,
  endsWithProcess: false,
  settings: (completed) => completed,
  blueprintKey: () => "local",
  canLimit: ({ isolation }) => isolation === "bubblewrap",
  experimental: ({ isolation }) =>
    isolation === "unsafe-process"
      ? ["local.isolation: unsafe-process is tried on Linux only, and rewrites paths in the text of commands"]
      : [],
  async open({ fleet, section, world }) {
    const { createLocalBackend } = await import("./backend.ts");
    return createLocalBackend({ settings: { ...fleet, local: section }, world });
  },
  async doctor({ fleet, section, environment }) {
    const { localFindings } = await import("./doctor.ts");
    const { localHostFindings } = await import("./host-findings.ts");
    return [...(await localFindings({ ...fleet, local: section })), ...localHostFindings(environment)];
  },
  owns: (ref) => parseRef(ref) !== null,
  async look({ fleet, section, world }) {
    if (section.isolation !== "bubblewrap") return null;
    const { lookAtObjects } = await import("./look.ts");
    return lookAtObjects(fleet, world);
  },
} as const satisfies BackendEntry<LocalConfig, LocalConfig>;
