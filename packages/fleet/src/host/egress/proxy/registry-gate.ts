/**
 * What a sandbox reads from package registries.
 *
 *   GET below a registry's path ─▶ credentials of that registry ─▶ its answer
 *                                                                  └ sent on to another host: the proxy reads it there
 *
 * Invariants
 * - Only `GET` and `HEAD` without a body pass, below a registry's path.
 * - Credentials go to the host that they belong to. A host that a registry sends its readers on to gets none.
 * - The sandbox itself never reaches such a host: the proxy follows, to public addresses and to those that the
 *   configuration names, and never from https to http.
 */

import type { IncomingMessage } from "node:http";
import { type Authority, parseHost, writtenAuthority } from "../../../backend/network/host-name.ts";
import { type CompiledPolicy, registriesAt, rulesFor } from "../../../backend/network/policy.ts";
import {
  type CompiledRegistry,
  isBelow,
  type MirrorConsent,
  namedRange,
} from "../../../backend/network/registry-rules.ts";
import type { World } from "../../../world/world.ts";
import type { EgressLimits } from "../limits.ts";
import type { Refusal } from "../rules/decide.ts";
import type { Resolver } from "../rules/resolver.ts";
import { Dialer } from "./dialer.ts";
import { type Forwarding, hasBody, NOTHING_BOUND } from "./forwarding.ts";
import { plain, type Reply } from "./replies.ts";
import { Upstream } from "./upstream.ts";

export interface RegistryGateOptions {
  readonly policy: CompiledPolicy;
  readonly mirrors: readonly MirrorConsent[];
  readonly resolver: Resolver;
  readonly world: World;
  readonly limits: EgressLimits;
  readonly extraCa?: readonly string[] | undefined;
}

type Via = CompiledRegistry["via"];

const HOPS_MAX = 5;

export class RegistryGate {
  readonly #policy: CompiledPolicy;
  readonly #dialer: Dialer;
  readonly #upstreams: Readonly<Record<Via, Upstream>>;
  readonly #onward: Readonly<Record<Via, Upstream>>;

  constructor({ policy, mirrors, ...parts }: RegistryGateOptions) {
    this.#policy = policy;
    this.#dialer = new Dialer({ policy: ofRegistries(policy.registries), ...parts });
    this.#upstreams = bothWays(this.#dialer, parts);
    this.#onward = bothWays(new Dialer({ policy: onwardPolicy(mirrors), ...parts }), parts);
  }

  has(via: Via, { host, port }: Authority): boolean {
    return registriesAt(this.#policy, via, host, port).length > 0;
  }

  /** Rejects with `Refused` or `Unreachable`, as connecting would. */
  check(target: Authority): Promise<void> {
    return this.#dialer.check(target);
  }

  /** `null`: no registry is there, or a rule of `allow` passes what the registry does not. */
  decide(via: Via, request: IncomingMessage, target: Authority, path: string): CompiledRegistry | Refusal | null {
    const here = registriesAt(this.#policy, via, target.host, target.port);
    if (here.length === 0) return null;
    const reads = (request.method === "GET" || request.method === "HEAD") && !hasBody(request);
    const found = longest(here.filter((one) => isBelow(one.path, path)));
    if (reads && found !== undefined && request.headers.upgrade === undefined) return found;
    if (rulesFor(this.#policy, target.host, target.port).length > 0) return null;
    const places = here.map(({ text }) => text).join(" and ");
    const [rule, because] = reads
      ? (["registry-path", `of this host only ${places} may be read`] as const)
      : (["registry-read-only", `of ${places} only GET and HEAD pass, so nothing is published or changed`] as const);
    return { host: target.host.text, port: target.port, rule, addresses: [], because };
  }

  forwarding(registry: CompiledRegistry, base: Pick<Forwarding, "target" | "path" | "fail">): Forwarding {
    const { credential, via } = registry;
    return {
      ...base,
      defaultPort: via === "https" ? 443 : 80,
      bound:
        credential === null
          ? NOTHING_BOUND
          : { headers: { authorization: credential.authorization }, hidden: credential.values },
      upstream: this.#upstreams[via],
      instead: (incoming) => this.#instead(incoming, registry, base, HOPS_MAX, via),
    };
  }

  close(): void {
    for (const upstream of [...Object.values(this.#upstreams), ...Object.values(this.#onward)]) upstream.close();
  }

  /** What is answered in place of this response: a clear refusal of credentials, or what it sends its reader on to. */
  #instead(
    incoming: IncomingMessage,
    registry: CompiledRegistry,
    from: Pick<Forwarding, "target" | "path" | "fail">,
    hopsLeft: number,
    via: Via,
  ): Forwarding | Reply | null {
    const { statusCode: status = 0, headers } = incoming;
    if (status === 401 && hopsLeft === HOPS_MAX) return unauthorized(registry);
    if (![301, 302, 303, 307, 308].includes(status) || headers.location === undefined) return null;
    const next = URL.parse(headers.location, `${via}://${writtenAuthority(from.target)}${from.path}`);
    const nextVia = next?.protocol === "https:" ? "https" : next?.protocol === "http:" ? "http" : null;
    const host = next === null ? null : parseHost(next.hostname);
    if (next === null || nextVia === null || host === null) return plain(502, "The registry sent a bad redirect.");
    const target = { host, port: next.port === "" ? (nextVia === "https" ? 443 : 80) : Number(next.port) };
    const path = `${next.pathname}${next.search}`;
    if (hopsLeft === HOPS_MAX && this.#isReachable(nextVia, target, path)) return null;
    if (via === "https" && nextVia === "http") {
      return plain(502, `The registry sent this request on to ${host.text} without TLS, which is not followed.`);
    }
    if (hopsLeft === 0) return plain(508, "The registry sent this request on too many times.");
    const onward = { target, path, fail: from.fail };
    return {
      ...onward,
      defaultPort: nextVia === "https" ? 443 : 80,
      bound: { headers: {}, hidden: registry.credential?.values ?? [] },
      drops: ["authorization", "cookie", "proxy-authorization"],
      upstream: this.#onward[nextVia],
      instead: (answer) => this.#instead(answer, registry, onward, hopsLeft - 1, nextVia),
    };
  }

  /** Whether the client can go there by itself. Links in a page that was read there stay right only then. */
  #isReachable(via: Via, target: Authority, path: string): boolean {
    if (registriesAt(this.#policy, via, target.host, target.port).some((one) => isBelow(one.path, path))) return true;
    return this.#policy.mode === "open" || rulesFor(this.#policy, target.host, target.port).length > 0;
  }
}

function unauthorized({ text, credential, tool }: CompiledRegistry): Reply {
  return plain(
    403,
    credential === null
      ? `${text} asks for credentials. The operator of Sandlot puts them into the configuration of ${tool} on the host and names the host in the blueprint's network.mirrors.`
      : `${text} refuses the credentials that the host has in ${credential.origin}. The operator of Sandlot renews them there.`,
  );
}

function longest(registries: readonly CompiledRegistry[]): CompiledRegistry | undefined {
  return [...registries].sort((a, b) => b.path.length - a.path.length)[0];
}

function bothWays(
  dialer: Dialer,
  parts: Pick<RegistryGateOptions, "world" | "limits" | "extraCa">,
): Readonly<Record<Via, Upstream>> {
  return {
    http: new Upstream({ dialer, ...parts, via: "http" }),
    https: new Upstream({ dialer, ...parts, via: "https" }),
  };
}

function ofRegistries(registries: readonly CompiledRegistry[]): CompiledPolicy {
  const rules = registries.map(({ host, port, addresses, text }) => ({
    text,
    ports: new Set([port]),
    addresses,
    matches: (asked: Authority["host"]) => asked.text === host.text,
  }));
  return { mode: "allowlist", rules, secrets: [], registries: [] };
}

/** Public addresses, and those that the configuration names. */
export function onwardPolicy(mirrors: readonly MirrorConsent[]): CompiledPolicy {
  const everyPort = { has: () => true, size: 65_535 } as unknown as ReadonlySet<number>;
  const rules = mirrors.flatMap(({ host: text, addresses }) => {
    const host = parseHost(text);
    if (host === null || addresses === undefined) return [];
    const ranges = addresses.map((range) => namedRange(range, "network.mirrors"));
    return [
      { text, ports: everyPort, addresses: ranges, matches: (asked: Authority["host"]) => asked.text === host.text },
    ];
  });
  return { mode: "open", rules, secrets: [], registries: [] };
}
