/** A description of the sandbox for a model, before the first call. */

import type { SandboxAbout } from "@sandlot/contract";

const PLACES =
  "You have a Linux sandbox of your own for this conversation. Work in /mnt/user-data/workspace, put finished files for the user into " +
  "/mnt/user-data/outputs, find the user's files in /mnt/user-data/uploads. Files there are kept; processes, /tmp and what you " +
  "install elsewhere may be lost when the sandbox is replaced, which an answer then says.";

/** With the known facts about the sandbox: its network and its programs. */
export function sandboxInstructions(about?: SandboxAbout): string {
  return `${PLACES} ${abilities(about)}`;
}

/** Without any known facts. */
export const SANDBOX_INSTRUCTIONS = sandboxInstructions();

/** The account of commands, their network and the available programs. */
export function abilities(about?: SandboxAbout): string {
  return ["You are an ordinary user: there is no root and no sudo.", reach(about), programs(about)].join(" ");
}

/** Added to the output of a command whose name lookup failed. */
export function lookupRemark(about?: SandboxAbout): string {
  switch (about?.network.mode) {
    case "none":
      return "[this sandbox has no network]";
    case "allowlist":
      return `[this sandbox reaches only ${listed(about.network.allow)}, through its proxy]`;
    case "open":
      return "[the name could not be looked up; this sandbox has a network]";
    default:
      return "[the name could not be looked up; `echo $SANDLOT_NETWORK` shows what this sandbox reaches]";
  }
}

/** Programs' messages for a missing network or name. */
export const FAILED_LOOKUP =
  /could not resolve host|temporary failure in name resolution|name or service not known|getaddrinfo (?:EAI_AGAIN|ENOTFOUND)|network is unreachable|no address associated with hostname/i;

const ALLOWED_SHOWN = 20;

function reach(about: SandboxAbout | undefined): string {
  switch (about?.network.mode) {
    case "none":
      return "There is no network: downloads, package installs and name lookups fail, so do not try them.";
    case "allowlist":
      return `The network reaches only ${listed(about.network.allow)}; all else is refused.`;
    case "open":
      return "The network reaches public addresses.";
    default:
      return "The variable SANDLOT_NETWORK says what the network reaches: `none`, `allowlist` or `open`.";
  }
}

function programs(about: SandboxAbout | undefined): string {
  const known = about?.programs;
  if (known === undefined) return "See with `command -v` which programs there are.";
  return known.length === 0 ? "There are only the usual small tools." : `Programs: ${known.join(", ")}.`;
}

function listed(allow: readonly string[]): string {
  if (allow.length === 0) return "nothing";
  const more = allow.length > ALLOWED_SHOWN ? ` and ${allow.length - ALLOWED_SHOWN} more` : "";
  return allow.slice(0, ALLOWED_SHOWN).join(", ") + more;
}
