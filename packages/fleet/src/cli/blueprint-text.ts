/** A blueprint's limits and network in one line of text, and which limits are missing. */

import type { Blueprint } from "../backend/blueprint.ts";

const UNITS = [
  ["GiB", 1024 ** 3],
  ["MiB", 1024 ** 2],
  ["KiB", 1024],
] as const;

const SHOWN: readonly (readonly [keyof Blueprint["limits"], string, (value: number) => string])[] = [
  ["memoryBytes", "memory", (bytes) => `memory ${sizeText(bytes)}`],
  ["pidsMax", "processes", (count) => `${count} processes`],
  ["diskBytes", "disk", (bytes) => `disk ${sizeText(bytes)}`],
  ["filesMax", "files", (count) => `${count} files`],
];

/** `memory 8 GiB, 1024 processes, disk 10 GiB, 500000 files, any number of processors (weight 50); network none`. */
export function blueprintText({ limits, network }: Blueprint): string {
  const amounts = SHOWN.map(([key, what, say]) => {
    const limit = limits[key];
    return limit === undefined ? `unlimited ${what}` : say(limit);
  });
  const { cpuCount, cpuWeight } = limits;
  const processors = cpuCount === undefined ? "any number of processors" : `${cpuCount} processors`;
  const weight = cpuWeight === undefined ? "" : ` (weight ${cpuWeight})`;
  const tools = (network.registries ?? []).map((tool) => `packages of ${tool}`);
  const hosts = [...(network.mode === "allowlist" ? network.allow.map(({ host }) => host) : []), ...tools];
  const allowed = hosts.length === 0 ? "" : ` (${hosts.join(", ")})`;
  return `${amounts.join(", ")}, ${processors}${weight}; network ${network.mode}${allowed}`;
}

/** The resources without a limit, with which a sandbox can exhaust the machine. */
export function unlimitedText({ limits }: Blueprint): string | null {
  const missing = SHOWN.filter(([key]) => limits[key] === undefined).map(([, what]) => what);
  return missing.length === 0 ? null : missing.join(", ");
}

function sizeText(bytes: number): string {
  const [unit, size] = UNITS.find(([, one]) => bytes >= one) ?? ["bytes", 1];
  return `${Math.round((bytes / size) * 10) / 10} ${unit}`;
}
