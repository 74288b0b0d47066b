/**
 * The text of a refusal, for the reader of the refused command's output. That is mostly a language model, so the text
 * says what refused the request and who can change it.
 */

import type { CompiledPolicy } from "../../../backend/network/policy.ts";
import type { Refusal } from "./decide.ts";

const RULES_SHOWN_MAX = 40;

export function explainRefusal(refusal: Refusal, policy: CompiledPolicy): string {
  const target = `${refusal.host}:${refusal.port}`;
  return [
    `Sandlot refused the connection to ${target}.`,
    `Rule: ${refusal.rule} (${refusal.because}).`,
    `Network mode of this sandbox: ${policy.mode}. Allowed: ${allowedText(policy)}.`,
    `To allow it, whoever operates Sandlot adds this to the blueprint's network.allow: ${remedy(refusal)}.`,
    "It cannot be changed from inside the sandbox, and trying again gives the same answer.",
    "",
  ].join("\n");
}

/** Fits into a status line, which is all that many clients show of a refused CONNECT. */
export function shortRefusal(refusal: Refusal): string {
  return `Forbidden by Sandlot: ${refusal.host}:${refusal.port} ${refusal.rule}`;
}

export function allowedText({ mode, rules }: CompiledPolicy): string {
  const shown = rules.slice(0, RULES_SHOWN_MAX).map(({ text, ports }) => `${text}:${[...ports].join(",")}`);
  if (rules.length > shown.length) shown.push(`and ${rules.length - shown.length} more`);
  if (mode === "open") shown.unshift("every public address");
  return shown.length === 0 ? "nothing" : shown.join(" ");
}

function remedy({ host, port, rule, addresses }: Refusal): string {
  const entry = { host, ports: [port], ...(rule !== "not-allowed" && addresses.length > 0 && { addresses }) };
  return JSON.stringify(entry);
}
