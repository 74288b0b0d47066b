/** The `remote` backend in the registry. */

import type { BackendEntry } from "../../backend/entry.ts";
import { type RemoteConfig, remoteSchema } from "./config.ts";
import { parseRef } from "./object-id.ts";

export const REMOTE = {
  name: "remote",
  about: "a provisioner: another Sandlot gateway, or DeerFlow's service",
  configSchema: remoteSchema,
  endsWithProcess: false,
  settings: (completed) => completed,
  blueprintKey: () => "remote",
  canLimit: () => false,
  experimental: () => [],
  async open({ fleet, section, world }) {
    const { openRemoteBackend } = await import("./backend.ts");
    return openRemoteBackend({ settings: { ...fleet, remote: section }, world });
  },
  async doctor({ section, environment, trial }) {
    const { remoteFindings } = await import("./doctor.ts");
    return remoteFindings(section, { environment, trial });
  },
  owns: (ref) => parseRef(ref) !== null,
} as const satisfies BackendEntry<RemoteConfig, RemoteConfig>;
