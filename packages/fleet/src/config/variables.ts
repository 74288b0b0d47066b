/**
 * `$NAME` in configured values, so that secrets stay out of configuration files.
 *
 *   $NAME  ${NAME}   the variable's value, which is not expanded again
 *   $$               a dollar sign
 *   $ otherwise      refused, because a shell would treat it differently
 */

import type { Environment } from "../backend/entry.ts";

export type { Environment } from "../backend/entry.ts";

export type Expansion =
  | { readonly ok: true; readonly value: string }
  | { readonly ok: false; readonly problem: string };

const REFERENCE = /\$(?:(\$)|([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})?/g;

/** Never shows a value: problems end up in logs. */
export function expandVariables(text: string, environment: Environment): Expansion {
  let problem: string | undefined;
  const value = text.replaceAll(REFERENCE, (_, dollar?: string, bare?: string, braced?: string) => {
    if (dollar !== undefined) return "$";
    const name = bare ?? braced;
    if (name === undefined) {
      problem ??= "has a $ that is not followed by a variable's name, bare or in braces; write $$ for a dollar sign";
      return "";
    }
    const found = Object.hasOwn(environment, name) ? environment[name] : undefined;
    if (found === undefined)
      problem ??= `needs the environment variable ${name}, which is not set; write $$ for a dollar sign`;
    return found ?? "";
  });
  return problem === undefined ? { ok: true, value } : { ok: false, problem };
}
