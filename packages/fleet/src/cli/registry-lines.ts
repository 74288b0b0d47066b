/** The places that blueprints' registries come to, with what named each, for `doctor` and `config check`. */

import { isSandlotError } from "@sandlot/contract";
import type { Finding } from "../backend/doctor/finding.ts";
import type { NamedBlueprint } from "../config/settings.ts";
import type { Environment } from "../config/variables.ts";
import { type RegistryLine, resolveRegistries, thisMachine } from "../host/egress/index.ts";
import { systemWorld } from "../world/system-world.ts";

export interface BlueprintRegistries {
  /** Its name; the network of its setup is one of its own. */
  readonly blueprint: string;
  readonly registries: readonly RegistryLine[];
}

export async function registriesOf(
  blueprints: Readonly<Record<string, NamedBlueprint>>,
  environment: Environment,
): Promise<readonly BlueprintRegistries[]> {
  const found: BlueprintRegistries[] = [];
  for (const { name, blueprint } of Object.values(blueprints)) {
    const { network, setup } = blueprint;
    const networks = [[name, network] as const, ...(setup ? [[`${name}'s setup`, setup.network] as const] : [])];
    for (const [user, { registries, mirrors }] of networks) {
      const options = { world: systemWorld(), machine: thisMachine(environment) };
      const resolved = await resolveRegistries({ registries, mirrors }, options);
      if (resolved !== null) found.push({ blueprint: user, registries: resolved.lines });
    }
  }
  return found;
}

/** `https://packages.example.org/simple/, from /etc/pip.conf; with the credentials in /root/.netrc`. */
export function registryText({ url, origin, notes }: RegistryLine): string {
  return [`${url}, from ${origin}`, ...notes].join("; ");
}

export async function registryFindings(
  blueprints: Readonly<Record<string, NamedBlueprint>>,
  environment: Environment,
): Promise<readonly Finding[]> {
  try {
    return (await registriesOf(blueprints, environment)).flatMap(({ blueprint, registries }) =>
      registries.map((line): Finding => {
        const name = `registry ${line.tool} (${blueprint})`;
        const detail = registryText(line);
        if (line.problem === null) return { name, status: "ok", detail };
        const fix =
          "make the index answer, or name the host in network.mirrors when it is private or needs credentials";
        return { name, status: "warn", detail, fix };
      }),
    );
  } catch (error) {
    if (!isSandlotError(error, "config_invalid")) throw error;
    return [{ name: "registries", status: "fail", detail: error.message, fix: error.remedy }];
  }
}
