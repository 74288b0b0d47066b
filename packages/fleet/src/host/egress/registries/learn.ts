/**
 * The second hosts of a registry, from its own answers: where an index has its files, and who keeps Go's checksums.
 *
 * Invariants
 * - One or two small requests for each index, in bounded time, under the rules that hold for sandboxes: public
 *   addresses, or those that the configuration names.
 * - An index that does not answer names no second host. That is a note, never a failure: the index itself stays usable.
 */

import { request as httpRequest } from "node:http";
import { parseHost } from "../../../backend/network/host-name.ts";
import { isBelow, type MirrorConsent, type RegistryCredential } from "../../../backend/network/registry-rules.ts";
import type { World } from "../../../world/world.ts";
import { EGRESS_LIMITS } from "../limits.ts";
import { Dialer } from "../proxy/dialer.ts";
import { onwardPolicy } from "../proxy/registry-gate.ts";
import { Upstream } from "../proxy/upstream.ts";
import { type Resolver, systemResolver } from "../rules/resolver.ts";
import type { Source } from "./tools.ts";

export interface LearnOptions {
  readonly mirrors: readonly MirrorConsent[];
  readonly trusted: readonly string[];
  readonly world: World;
  readonly resolver?: Resolver | undefined;
}

export interface Learned {
  /** Addresses that end with a slash. */
  readonly urls: readonly string[];
  /** Why nothing could be learned; `null` when the index has answered. */
  readonly problem: string | null;
}

interface Page {
  readonly status: number;
  readonly url: string;
  readonly text: string;
}

const PROBE_TIMEOUT_MS = 8_000;
/** The beginning of an index's page; links stand all over it. */
const PAGE_MAX_CHARS = 256 * 1_024;

export class Learner {
  readonly #options: LearnOptions;
  readonly #upstreams: { readonly http: Upstream; readonly https: Upstream };

  constructor(options: LearnOptions) {
    this.#options = options;
    const { world, resolver = systemResolver, mirrors, trusted: extraCa } = options;
    const limits = { ...EGRESS_LIMITS, dialTimeoutMs: PROBE_TIMEOUT_MS, headTimeoutMs: PROBE_TIMEOUT_MS };
    const dialer = new Dialer({ policy: onwardPolicy(mirrors), resolver, world, limits });
    const parts = { dialer, world, limits, extraCa };
    this.#upstreams = {
      http: new Upstream({ ...parts, via: "http" }),
      https: new Upstream({ ...parts, via: "https" }),
    };
  }

  close(): void {
    this.#upstreams.http.close();
    this.#upstreams.https.close();
  }

  /** `checksums`: the value of GOSUMDB. */
  async learn(source: Source, credential: RegistryCredential | null, checksums = "off"): Promise<Learned> {
    const get = (path: string) => this.#get(new URL(path, below(source.url)).href, credential);
    try {
      const urls = await LEARNERS[source.tool](get, source, checksums);
      const found = [...new Set(urls)].filter((url) => !isCovered(source.url, url) && !isWeaker(source.url, url));
      return { urls: found, problem: null };
    } catch (error) {
      return { urls: [], problem: error instanceof Error ? error.message : String(error) };
    }
  }

  async #get(url: string, credential: RegistryCredential | null): Promise<Page> {
    const { protocol, hostname, port, pathname, search } = new URL(url);
    const host = parseHost(hostname);
    if (host === null) throw new Error(`${hostname} is no host`);
    const via = protocol === "https:" ? "https" : "http";
    const target = { host, port: port === "" ? (via === "https" ? 443 : 80) : Number(port) };
    const accept =
      "application/vnd.pypi.simple.v1+json, application/vnd.npm.install-v1+json, application/json, text/html;q=0.5";
    const own = { host: new URL(url).host, accept, "user-agent": "sandlot", "accept-encoding": "identity" };
    const headers = credential === null ? own : { ...own, authorization: credential.authorization };
    return new Promise((resolve, reject) => {
      const request = httpRequest({
        ...this.#upstreams[via].requestTo(target, true),
        path: `${pathname}${search}`,
        headers,
      });
      const timer = this.#options.world.timer(PROBE_TIMEOUT_MS, () =>
        request.destroy(new Error("it did not answer in time")),
      );
      request.once("error", (error) => {
        timer.cancel();
        reject(error);
      });
      request.once("response", (response) => {
        let text = "";
        const done = (): void => {
          timer.cancel();
          resolve({ status: response.statusCode ?? 0, url, text });
        };
        response.setEncoding("utf8");
        response.on("data", (chunk: string) => {
          text += chunk;
          if (text.length < PAGE_MAX_CHARS) return;
          done();
          request.destroy();
        });
        response.once("end", done);
        response.once("error", done);
      });
      request.end();
    });
  }
}

type Get = (path: string) => Promise<Page>;

const LEARNERS: Readonly<Record<Source["tool"], (get: Get, source: Source, checksums: string) => Promise<string[]>>> = {
  pip: async (get, { url }) => {
    const own = await get("pip/");
    if (own.status === 200) return [placeOf(url, links(own), "pip")].flat();
    refuseBad(own, 404);
    const root = await get("");
    refuseBad(root);
    const first = links(root).find((link) => isCovered(url, link));
    if (first === undefined) return [];
    return placeOf(url, links(await get(first)), new URL(first).pathname.split("/").filter(Boolean).at(-1) ?? "");
  },
  npm: async (get, { url }) => {
    let name = "npm";
    let page = await get(name);
    if (page.status === 404) {
      const search = await get("-/v1/search?text=a&size=1");
      name = /"name"\s*:\s*"([^"]+)"/.exec(search.text)?.[1] ?? "";
      if (search.status !== 200 || name === "")
        throw new Error("it has neither the package npm nor a search that finds one");
      page = await get(name.replace("/", "%2f"));
    }
    refuseBad(page);
    return placeOf(url, matches(page, /"tarball"\s*:\s*"([^"]+)"/g), name);
  },
  cargo: async (get) => {
    const page = await get("config.json");
    refuseBad(page);
    const place = /"dl"\s*:\s*"([^"]+)"/.exec(page.text)?.[1];
    if (place === undefined) throw new Error("its config.json names no place of downloads");
    const [fixed = ""] = place.split("{", 1);
    return [fixed === place ? below(place) : fixed.slice(0, fixed.lastIndexOf("/") + 1)];
  },
  go: async (get, _source, checksums) => {
    const [named = "", address] = checksums.split(/\s+/);
    const [name = ""] = named.split("+", 1);
    if (name === "" || name === "off") return [];
    const page = await get(`sumdb/${name}/supported`);
    return page.status === 200 ? [] : [below(address ?? `https://${name}`)];
  },
};

function refuseBad({ status }: Page, ...besides: readonly number[]): void {
  if (status === 200 || besides.includes(status)) return;
  throw new Error(status === 401 || status === 403 ? `it asks for credentials (${status})` : `it answered ${status}`);
}

/** Links of a page of pip's simple index, as HTML or JSON. */
function links(page: Page): readonly string[] {
  return matches(
    page,
    page.text.trimStart().startsWith("{") ? /"url"\s*:\s*"([^"]+)"/g : /<a\b[^>]*?href\s*=\s*["']([^"'#]+)/gi,
  );
}

function matches({ text, url }: Page, pattern: RegExp): readonly string[] {
  return [...text.matchAll(pattern)].flatMap(([, link = ""]) => {
    const found = URL.parse(link.replaceAll("&amp;", "&").replaceAll("\\/", "/"), url);
    return found === null || !/^https?:$/.test(found.protocol) ? [] : [found.href];
  });
}

/**
 * The path that files of all packages have in common, from those of one: up to the package's name; on the index's own
 * host at most one step beside the index, so that the rest of a mirror stays closed; elsewhere the first step.
 */
function placeOf(index: string, files: readonly string[], name: string): string[] {
  const places = files.map((file) => {
    const { origin, pathname } = new URL(file);
    const steps = pathname.split("/").slice(1, -1);
    const named = steps.findIndex((step) => decodeURIComponent(step) === name || step === name.split("/")[0]);
    const before = named < 0 ? steps : steps.slice(0, named);
    const own = new URL(index);
    const indexSteps = own.pathname.split("/").filter(Boolean);
    const shared = origin === own.origin ? before.findIndex((step, at) => step !== indexSteps[at]) : 0;
    const kept = shared < 0 ? before : before.slice(0, shared + 1);
    return `${origin}/${kept.map((step) => `${step}/`).join("")}`;
  });
  return [...new Set(places)].slice(0, PLACES_MAX);
}

const PLACES_MAX = 4;

function isCovered(index: string, url: string): boolean {
  const [own, other] = [new URL(below(index)), new URL(url)];
  return own.origin === other.origin && isBelow(own.pathname, other.pathname);
}

/** Over plain HTTP although the index has TLS. */
function isWeaker(index: string, url: string): boolean {
  return index.startsWith("https:") && !url.startsWith("https:");
}

function below(url: string): string {
  return url.endsWith("/") ? url : `${url}/`;
}
