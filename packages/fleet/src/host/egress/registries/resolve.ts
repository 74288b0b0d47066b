/**
 * The registries of a blueprint: which places its sandboxes may read, why, and what the tools inside are told.
 *
 * Invariant: a credential, or a private address, is used only for a host that the configuration names in
 * `network.mirrors`. What the machine's files name is no consent.
 */

import { SandlotError } from "@sandlot/contract";
import type {
  MirrorConsent,
  RegistryAccess,
  RegistryRule,
  RegistryTool,
} from "../../../backend/network/registry-rules.ts";
import { compileRegistry } from "../../../backend/network/registry-rules.ts";
import { ConcurrencyLimit } from "../../../world/concurrency-limit.ts";
import type { World } from "../../../world/world.ts";
import type { Resolver } from "../rules/resolver.ts";
import { EGRESS_MOUNT } from "../sandbox-side/egress-mount.ts";
import { Learner } from "./learn.ts";
import { type Machine, thisMachine } from "./machine.ts";
import { type Source, sourcesOf, type ToolSources } from "./tools.ts";

export interface RegistryWish {
  readonly registries?: readonly RegistryTool[] | undefined;
  readonly mirrors?: readonly MirrorConsent[] | undefined;
}

/** One place, for people. */
export interface RegistryLine {
  readonly tool: RegistryTool;
  readonly url: string;
  readonly origin: string;
  /** What is used besides, or what is missing. */
  readonly notes: readonly string[];
  /** Why its second hosts are not known; `null` when the index has answered. */
  readonly problem: string | null;
}

export interface ResolvedRegistries {
  readonly access: RegistryAccess;
  readonly lines: readonly RegistryLine[];
  /** Whether every index has answered. */
  readonly isComplete: boolean;
}

export interface ResolveOptions {
  readonly world: World;
  readonly machine?: Machine | undefined;
  readonly resolver?: Resolver | undefined;
}

/** `null` when the blueprint has no registries. Rejects with `config_invalid` when a tool's registry is unknown. */
export async function resolveRegistries(
  wish: RegistryWish,
  options: ResolveOptions,
): Promise<ResolvedRegistries | null> {
  const { registries = [], mirrors = [] } = wish;
  if (registries.length === 0) return null;
  const { world, machine = thisMachine(), resolver } = options;
  const tools = await Promise.all([...new Set(registries)].map((tool) => sourcesOf(tool, machine)));
  const trusted = tools.flatMap(({ trustedFiles }) => trustedFiles).flatMap((file) => certificates(machine, file));
  const learner = new Learner({ mirrors, trusted, world, resolver });
  try {
    const turns = new ConcurrencyLimit(4);
    const found = await Promise.all(
      tools.flatMap(({ sources, checksums }) =>
        sources.map((source) =>
          turns.run(new AbortController().signal, () => placesOf(source, mirrors, learner, checksums?.database)),
        ),
      ),
    );
    const rules = unique(found.flatMap((one) => one.rules));
    for (const rule of rules) compileRegistry(rule, "network.registries");
    return {
      access: { rules, mirrors, trusted, ...insideOf(tools) },
      lines: found.flatMap(({ lines }) => lines),
      isComplete: found.every(({ isComplete }) => isComplete),
    };
  } finally {
    learner.close();
  }
}

async function placesOf(
  source: Source,
  mirrors: readonly MirrorConsent[],
  learner: Learner,
  checksums: string | undefined,
): Promise<{ rules: readonly RegistryRule[]; lines: readonly RegistryLine[]; isComplete: boolean }> {
  const named = consentTo(source.url, mirrors);
  const credential = named === undefined ? null : source.credential;
  const { urls, problem } = await learner.learn(source, credential, checksums);
  const { tool, url, origin } = source;
  const notes = [
    ...(source.credential === null
      ? []
      : [
          credential === null
            ? `the credentials in ${source.credential.origin} are not used, because network.mirrors does not name ${new URL(url).hostname}`
            : `with the credentials in ${source.credential.origin}`,
        ]),
    ...(named?.addresses === undefined ? [] : [`at ${named.addresses.join(" ")}`]),
    ...(problem === null ? [] : [`its second hosts are not known: ${problem}`]),
  ];
  const ruleOf = (place: string, from: string): RegistryRule => ({
    ...{ tool, url: place, origin: from },
    ...withAddresses(consentTo(place, mirrors)),
    // Its own host's credentials also go to the files beside the index, never to another host.
    ...(credential !== null && new URL(place).origin === new URL(url).origin && { credential }),
  });
  const second = urls.map((place) => ruleOf(place, `the answer of ${url}`));
  return {
    rules: [ruleOf(url, origin), ...second],
    lines: [
      { tool, url, origin, notes, problem },
      ...second.map((rule) => ({ tool, url: rule.url, origin: rule.origin, notes: [], problem: null })),
    ],
    isComplete: problem === null,
  };
}

function withAddresses(named: MirrorConsent | undefined) {
  return named?.addresses === undefined ? {} : { addresses: named.addresses };
}

function consentTo(url: string, mirrors: readonly MirrorConsent[]): MirrorConsent | undefined {
  const { hostname } = new URL(url);
  return mirrors.find(({ host }) => host.toLowerCase() === hostname);
}

function unique(rules: readonly RegistryRule[]): readonly RegistryRule[] {
  return [...new Map(rules.map((rule) => [`${rule.tool} ${rule.url}`, rule])).values()];
}

function certificates(machine: Machine, file: string): readonly string[] {
  const text = machine.read(file);
  if (text !== null) return text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  const problem = `the file of certificates ${file}, which a tool's configuration names, cannot be read`;
  throw new SandlotError("config_invalid", { path: "network.registries", problem });
}

/** A word in the place of a credential, for tools that send nothing without one. The proxy replaces it. */
const PLACEHOLDER = "bound-outside-the-sandbox";

function insideOf(tools: readonly ToolSources[]): Pick<RegistryAccess, "environment" | "files"> {
  const environment: Record<string, string> = {};
  const files: { name: string; content: string; at?: string }[] = [];
  for (const { sources, checksums } of tools) {
    const [main, ...more] = sources;
    if (main === undefined) continue;
    if (main.tool === "pip") Object.assign(environment, pipVariables(main, more));
    if (main.tool === "go") Object.assign(environment, goVariables(sources, checksums));
    if (main.tool === "npm") {
      files.push({ name: "npmrc", content: npmText(main, more) });
      environment.NPM_CONFIG_GLOBALCONFIG = `${EGRESS_MOUNT}/npmrc`;
    }
    if (main.tool === "cargo") {
      files.push({ name: "cargo.toml", content: cargoText(main, more), at: "/.cargo/config.toml" });
      for (const name of cargoNames(main, more))
        environment[`CARGO_REGISTRIES_${name.toUpperCase().replaceAll("-", "_")}_TOKEN`] = PLACEHOLDER;
    }
  }
  return { environment, files };
}

function pipVariables(main: Source, more: readonly Source[]): Record<string, string> {
  const extra = more.map(({ url }) => url).join(" ");
  const plain = [main, ...more].filter(({ url }) => url.startsWith("http:")).map(({ url }) => new URL(url).host);
  return {
    PIP_INDEX_URL: main.url,
    UV_DEFAULT_INDEX: main.url,
    ...(extra !== "" && { PIP_EXTRA_INDEX_URL: extra, UV_INDEX: extra }),
    ...(plain.length > 0 && { PIP_TRUSTED_HOST: [...new Set(plain)].join(" ") }),
    PIP_NO_INPUT: "1",
    PIP_DISABLE_PIP_VERSION_CHECK: "1",
  };
}

/** `direct` is left out: it means any host that a module's name leads to. */
function goVariables(sources: readonly Source[], checksums: ToolSources["checksums"]): Record<string, string> {
  return {
    GOPROXY: sources.map(({ url }) => url.replace(/\/$/, "")).join(","),
    GOSUMDB: checksums?.database ?? "off",
    GOVCS: "*:off",
    GONOPROXY: "none",
    ...(checksums !== undefined && checksums.without !== "" && { GONOSUMDB: checksums.without }),
  };
}

function npmText(main: Source, more: readonly Source[]): string {
  const lines = more.map(({ name, url }) => `${name}:registry=${url}`);
  // npm keeps the registry's own host in the addresses of files that it has from a lockfile.
  return [`registry=${main.url}`, ...lines, "audit=false", "fund=false", "update-notifier=false", ""].join("\n");
}

const DEFAULT_NAME = "sandlot-default";

function cargoNames(main: Source, more: readonly Source[]): readonly string[] {
  const names = [main, ...more].flatMap((source) =>
    source.credential === null ? [] : [source === main ? nameOfMain(main, more) : (source.name ?? DEFAULT_NAME)],
  );
  return [...new Set(names)];
}

/** Cargo refuses two names for one index. */
function nameOfMain(main: Source, more: readonly Source[]): string {
  return more.find(({ url }) => url === main.url)?.name ?? DEFAULT_NAME;
}

function cargoText(main: Source, more: readonly Source[]): string {
  const name = nameOfMain(main, more);
  const index = JSON.stringify(`sparse+${main.url}`);
  const isDefault = main.origin === "cargo's own default";
  const replaced = ["[source.crates-io]", `replace-with = "${name}"`, `[source.${name}]`, `registry = ${index}`];
  const named = [
    ...(isDefault ? [] : [{ name, url: main.url }]),
    ...more.filter(({ url }) => isDefault || url !== main.url),
  ].flatMap((one) => [`[registries.${one.name}]`, `index = ${JSON.stringify(`sparse+${one.url}`)}`]);
  const provider = ["[registry]", 'global-credential-providers = ["cargo:token"]'];
  return [...(isDefault ? [] : replaced), ...named, ...provider, ""].join("\n");
}
