/**
 * `sandlot doctor`: looks for known reasons why sandboxes do not work, and says how to mend them. It changes nothing.
 */

import { isSandlotError } from "@sandlot/contract";
import type { Finding } from "../../backend/doctor/finding.ts";
import type { Trial } from "../../backend/entry.ts";
import { backendEntry, REGISTRY, type Registry, sectionOf, storeEntry } from "../../config/registry.ts";
import { resolveSettings } from "../../config/resolve-settings.ts";
import type { NamedBlueprint, Settings } from "../../config/settings.ts";
import type { Environment } from "../../config/variables.ts";
import { blueprintText, unlimitedText } from "../blueprint-text.ts";
import { loadSettings } from "../load-settings.ts";
import { withProgress } from "../progress.ts";
import { registryFindings } from "../registry-lines.ts";
import type { TargetOptions } from "../target.ts";
import { EXIT_CODES, printJson, type Terminal } from "../terminal.ts";
import { hostFindings } from "./host-findings.ts";

export async function doctorCommand(terminal: Terminal, options: TargetOptions & { json: boolean }): Promise<number> {
  const findings = await withProgress(terminal, "Looking", () => allFindings(terminal, options));
  const failed = findings.some(({ status }) => status === "fail");
  if (options.json) printJson(terminal, { ready: !failed, findings });
  else print(terminal, findings);
  return failed ? EXIT_CODES.failed : EXIT_CODES.ok;
}

async function allFindings(terminal: Terminal, options: TargetOptions): Promise<readonly Finding[]> {
  let settings: Settings;
  try {
    settings = resolveSettings((await loadSettings(options.config, terminal.environment)).config, terminal.environment);
  } catch (error) {
    if (!isSandlotError(error)) throw error;
    return [{ name: "configuration", status: "fail", detail: error.message, fix: error.remedy }];
  }
  return findingsOf(settings, terminal.environment);
}

/** The limits in force; the finding of a limit only says how it would be enforced. */
export function blueprintFinding({ name, blueprint }: NamedBlueprint): Finding {
  const detail = blueprintText(blueprint);
  const unlimited = unlimitedText(blueprint);
  if (unlimited === null) return { name: `blueprint ${name}`, status: "ok", detail };
  const fix = `set limits in blueprints.${name} (sandlot config schema), or leave the keys out for the default`;
  return { name: `blueprint ${name}`, status: "warn", detail: `a sandbox may take the machine: ${detail}`, fix };
}

/** What the store, the machine, the blueprints and the backend of these settings say. */
export async function findingsOf(
  settings: Settings,
  environment: Environment,
  registry: Registry = REGISTRY,
): Promise<readonly Finding[]> {
  const store = await storeEntry(registry, settings.store).doctor(settings.store);
  const blueprints = Object.values(settings.blueprints).map(blueprintFinding);
  const entry = backendEntry(registry, settings.backend);
  const section = sectionOf(settings, entry);
  // A fleet is loaded only for a backend that tries one.
  const trial: Trial = async (use) => (await import("./trial.ts")).trialOf(settings, registry)(use);
  const backend = await entry.doctor({ fleet: settings, section, environment, trial });
  const registries = await registryFindings(settings.blueprints, environment);
  const experimental = entry.experimental(section).map(experimentalFinding);
  return [...hostFindings(settings.home, store), ...blueprints, ...registries, ...backend, ...experimental];
}

function experimentalFinding(sentence: string): Finding {
  return { name: "experimental", status: "warn", detail: sentence };
}

const SIGNS = { ok: "ok  ", warn: "warn", fail: "FAIL" } as const;

function print(terminal: Terminal, findings: readonly Finding[]): void {
  const width = Math.max(...findings.map(({ name }) => name.length));
  for (const { name, status, detail, fix } of findings) {
    terminal.out(`${SIGNS[status]}  ${name.padEnd(width)}  ${detail}\n`);
    if (fix !== undefined && status !== "ok") terminal.out(`${" ".repeat(width + 8)}fix: ${fix}\n`);
  }
  const bad = findings.filter(({ status }) => status === "fail").length;
  terminal.out(
    bad === 0 ? "\nThis machine is ready.\n" : `\n${bad} ${bad === 1 ? "thing stands" : "things stand"} in the way.\n`,
  );
}
