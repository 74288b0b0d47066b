/** The proxy's own responses: refusals, failures, and its status page. */

import { type ServerResponse, STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import type { CompiledPolicy } from "../../../backend/network/policy.ts";
import type { Refusal } from "../rules/decide.ts";
import { Refused, Unreachable } from "./dialer.ts";

export interface Reply {
  readonly status: number;
  /** Some clients show only this of a refused CONNECT. */
  readonly reason: string;
  readonly text: string;
}

export function replyTo(error: unknown, policy: CompiledPolicy): Reply {
  if (error instanceof Refused) {
    const { refusal } = error;
    return { status: 403, reason: shortRefusal(refusal), text: explainRefusal(refusal, policy) };
  }
  if (error instanceof Unreachable) return plain(error.status, error.message);
  const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
  return plain(502, `The connection to the host broke before it answered (${code}).`);
}

export function plain(status: number, text: string): Reply {
  return { status, reason: STATUS_CODES[status] ?? "", text: `Sandlot: ${text}\n` };
}

export function statusPage(policy: CompiledPolicy, refusals: readonly Refusal[]): Reply {
  const lines = [
    "Sandlot's way out of this sandbox: an HTTP proxy (absolute-form requests and CONNECT).",
    `Network mode: ${policy.mode}. Allowed: ${allowedText(policy)}.`,
    `Added by the proxy, unseen here: ${secretsText(policy)}.`,
    refusals.length === 0 ? "Nothing was refused so far." : "Refused lately, newest last:",
    ...refusals.map(({ host, port, rule, because }) => `  ${host}:${port} ${rule}: ${because}`),
  ];
  return { status: 200, reason: "OK", text: `${lines.join("\n")}\n` };
}

export function sendReply(response: ServerResponse, { status, reason, text }: Reply): void {
  response.writeHead(status, reason, { "content-type": "text/plain; charset=utf-8", ...lengthOf(text) });
  response.end(text);
}

/** For a connection that no longer speaks HTTP, as after CONNECT. */
export function sendRawReply(socket: Duplex, { status, reason, text }: Reply): void {
  const head = `HTTP/1.1 ${status} ${reason}\r\ncontent-type: text/plain; charset=utf-8\r\n`;
  socket.end(`${head}content-length: ${Buffer.byteLength(text)}\r\nconnection: close\r\n\r\n${text}`);
}

function lengthOf(text: string): { "content-length": number } {
  return { "content-length": Buffer.byteLength(text) };
}

function secretsText({ secrets }: CompiledPolicy): string {
  if (secrets.length === 0) return "nothing";
  return secrets.map(({ name, hostName, header, via }) => `${name} (${header} to ${via}://${hostName})`).join(", ");
}

const RULES_SHOWN_MAX = 40;

/**
 * For the reader of the refused command's output. That is mostly a language model, so the text says what refused the
 * request and who can change it.
 */
export function explainRefusal(refusal: Refusal, policy: CompiledPolicy): string {
  const target = `${refusal.host}:${refusal.port}`;
  return [
    `Sandlot refused the connection to ${target}.`,
    `Rule: ${refusal.rule} (${refusal.because}).`,
    `Network mode of this sandbox: ${policy.mode}. Allowed: ${allowedText(policy)}.`,
    remedyText(refusal),
    "It cannot be changed from inside the sandbox, and trying again gives the same answer.",
    "",
  ].join("\n");
}

/** Fits into a status line, which is all that many clients show of a refused CONNECT. */
function shortRefusal(refusal: Refusal): string {
  return `Forbidden by Sandlot: ${refusal.host}:${refusal.port} ${refusal.rule}`;
}

function allowedText({ mode, rules, registries }: CompiledPolicy): string {
  const read = registries.map(({ text }) => `${text} (GET and HEAD)`);
  const all = [...rules.map(({ text, ports }) => `${text}:${[...ports].join(",")}`), ...new Set(read)];
  const shown = all.slice(0, RULES_SHOWN_MAX);
  if (all.length > shown.length) shown.push(`and ${all.length - shown.length} more`);
  if (mode === "open") shown.unshift("every public address");
  return shown.length === 0 ? "nothing" : shown.join(" ");
}

function remedyText(refusal: Refusal): string {
  if (refusal.rule === "registry-read-only" || refusal.rule === "registry-path") {
    const { host, port } = refusal;
    return `Registries (network.registries) are for reading packages. To allow more on this host, the operator of Sandlot adds this to the blueprint's network.allow: ${JSON.stringify({ host, ports: [port] })}.`;
  }
  return `To allow it, the operator of Sandlot adds this to the blueprint's network.allow: ${remedy(refusal)}.`;
}

function remedy({ host, port, rule, addresses }: Refusal): string {
  const entry = { host, ports: [port], ...(rule !== "not-allowed" && addresses.length > 0 && { addresses }) };
  return JSON.stringify(entry);
}
