/**
 * Where each package tool of this machine reads packages: from its configuration, else as the tool itself says.
 *
 *   variables ─▶ files, most special first ─▶ the tool's built-in default
 */

import { dirname, join } from "node:path";
import { SandlotError } from "@sandlot/contract";
import type { RegistryCredential, RegistryTool } from "../../../backend/network/registry-rules.ts";
import { type NetrcEntry, parseIni, parseNetrc, parseNpmrc, parseTomlStrings } from "./formats.ts";
import type { Machine } from "./machine.ts";

/** One place that a tool reads, without its credentials in `url`. */
export interface Source {
  readonly tool: RegistryTool;
  readonly url: string;
  readonly origin: string;
  /** npm's scope, cargo's name of a registry; `null` for the default one. */
  readonly name: string | null;
  readonly credential: RegistryCredential | null;
}

export interface ToolSources {
  /** The first is the default one. */
  readonly sources: readonly Source[];
  /** Files with certificates of authorities. */
  readonly trustedFiles: readonly string[];
  /** Go's checksum database, as GOSUMDB has it; what it does not cover. */
  readonly checksums?: { readonly database: string; readonly origin: string; readonly without: string } | undefined;
}

export function sourcesOf(tool: RegistryTool, machine: Machine): Promise<ToolSources> {
  return { pip, npm, cargo, go }[tool](machine);
}

async function pip(machine: Machine): Promise<ToolSources> {
  const { environment: env, home, read } = machine;
  const config = env.XDG_CONFIG_HOME || join(home, ".config");
  const files =
    env.PIP_CONFIG_FILE === "/dev/null"
      ? []
      : [
          ...(env.XDG_CONFIG_DIRS || "/etc/xdg").split(":").map((folder) => join(folder, "pip/pip.conf")),
          "/etc/pip.conf",
          join(home, ".pip/pip.conf"),
          join(config, "pip/pip.conf"),
          ...(env.VIRTUAL_ENV ? [join(env.VIRTUAL_ENV, "pip.conf")] : []),
          ...(env.PIP_CONFIG_FILE ? [env.PIP_CONFIG_FILE] : []),
        ];
  const values = new Map<string, { text: string; origin: string }>();
  for (const file of files) {
    const sections = parseIni(read(file) ?? "");
    for (const section of ["global", "download", "install"])
      for (const [key, text] of sections.get(section) ?? [])
        values.set(key.replaceAll("_", "-"), { text, origin: file });
  }
  for (const [key, name] of [
    ["index-url", "PIP_INDEX_URL"],
    ["extra-index-url", "PIP_EXTRA_INDEX_URL"],
    ["cert", "PIP_CERT"],
  ] as const)
    if (env[name]) values.set(key, { text: env[name], origin: name });
  const main = values.get("index-url") ?? (await pipDefault(machine));
  const extra = values.get("extra-index-url");
  const more = (extra?.text ?? "").split(/\s+/).filter(Boolean);
  const all = [main, ...more.map((text) => ({ text, origin: extra?.origin ?? "" }))];
  const cert = values.get("cert")?.text;
  return {
    sources: all.map(({ text, origin }) => source("pip", text, origin, null, netrc(machine))),
    trustedFiles: cert === undefined ? [] : [cert],
  };
}

async function pipDefault(machine: Machine) {
  for (const [program, args] of [
    ["pip3", ["--isolated", "install", "--help"]],
    ["python3", ["-m", "pip", "--isolated", "install", "--help"]],
  ] as const) {
    const said = await machine.ask(program, args, { PIP_CONFIG_FILE: "/dev/null", COLUMNS: "400" });
    const found = /Index\s*\(default\s*(https?:[^\s)]+)\)/i.exec(said?.stdout.replace(/\s+/g, " ") ?? "")?.[1];
    if (found !== undefined) return { text: found, origin: "pip's own default" };
  }
  throw unknown("pip", "index-url in the section global of /etc/pip.conf, or the variable PIP_INDEX_URL");
}

async function npm(machine: Machine): Promise<ToolSources> {
  const { environment: env, home, read } = machine;
  const variable = (name: string): string | undefined =>
    Object.entries(env).find(([key]) => key.toLowerCase().replaceAll("-", "_") === `npm_config_${name}`)?.[1] ||
    undefined;
  const prefix = variable("prefix") ?? env.PREFIX;
  const files = [
    variable("userconfig") ?? join(home, ".npmrc"),
    variable("globalconfig") ?? join(prefix ?? dirname(dirname(process.execPath)), "etc/npmrc"),
    "/usr/local/etc/npmrc",
    "/usr/etc/npmrc",
    "/etc/npmrc",
  ];
  const levels = files.map((file) => ({ file, values: parseNpmrc(read(file) ?? "", env) }));
  const lookUp = (key: string) =>
    levels.flatMap(({ file, values }) => {
      const text = values.get(key);
      return text === undefined || text === "" ? [] : [{ text, origin: file }];
    })[0];
  const named = variable("registry");
  const main =
    named !== undefined
      ? { text: named, origin: "npm_config_registry" }
      : (lookUp("registry") ?? (await npmDefault(machine)));
  const scopes = [...new Set(levels.flatMap(({ values }) => [...values.keys()]))].flatMap(
    (key) => /^(@[^:]+):registry$/.exec(key)?.[1] ?? [],
  );
  const credentialOf = (url: URL): RegistryCredential | null => {
    // The nearest path above the registry, as npm looks.
    for (
      let path = `//${url.host}${url.pathname.replace(/\/?$/, "/")}`;
      path.length > 2;
      path = `${dirname(path)}/`.replace(/^\/+/, "//")
    ) {
      const token = lookUp(`${path}:_authToken`);
      if (token !== undefined) return bearer(token.text, token.origin);
      const basic = lookUp(`${path}:_auth`);
      if (basic !== undefined) return encoded(basic.text, basic.origin);
      const [user, password] = [lookUp(`${path}:username`), lookUp(`${path}:_password`)];
      if (user !== undefined && password !== undefined)
        return basicOf(user.text, Buffer.from(password.text, "base64").toString(), password.origin);
      if (path === `//${url.host}/`) break;
    }
    return null;
  };
  const of = (text: string, origin: string, name: string | null) => source("npm", text, origin, name, credentialOf);
  const cafile = variable("cafile") ?? lookUp("cafile")?.text;
  return {
    sources: [
      of(main.text, main.origin, null),
      ...scopes.map((scope) => {
        const found = lookUp(`${scope}:registry`) ?? main;
        return of(found.text, found.origin, scope);
      }),
    ],
    trustedFiles: cafile === undefined ? [] : [cafile],
  };
}

async function npmDefault(machine: Machine) {
  const nothing = { npm_config_userconfig: "none-of-a-user", npm_config_globalconfig: "none-of-all" };
  const said = await machine.ask("npm", ["config", "get", "registry"], nothing);
  const found = /^https?:\S+$/m.exec(said?.stdout ?? "")?.[0];
  if (found !== undefined) return { text: found, origin: "npm's own default" };
  throw unknown("npm", "registry in ~/.npmrc, or the variable npm_config_registry");
}

async function cargo(machine: Machine): Promise<ToolSources> {
  const { environment: env, home, read } = machine;
  const folder = env.CARGO_HOME || join(home, ".cargo");
  const file = ["config.toml", "config"].map((name) => join(folder, name)).find((path) => read(path) !== null);
  const values = file === undefined ? new Map<string, string>() : parseTomlStrings(read(file) ?? "");
  const secretsFile = ["credentials.toml", "credentials"]
    .map((name) => join(folder, name))
    .find((path) => read(path) !== null);
  const secrets = secretsFile === undefined ? new Map<string, string>() : parseTomlStrings(read(secretsFile) ?? "");
  const credentialOf = (name: string | null) => (): RegistryCredential | null => {
    if (name === null) return null;
    const variable = `CARGO_REGISTRIES_${name.toUpperCase().replaceAll("-", "_")}_TOKEN`;
    const own = env[variable];
    if (own) return plainToken(own, variable);
    const kept = secrets.get(`registries.${name}.token`);
    return kept === undefined ? null : plainToken(kept, secretsFile ?? "");
  };
  const indexes = new Map<string, { text: string; origin: string }>();
  for (const [key, text] of values) {
    const name = /^registries\.([^.]+)\.index$/.exec(key)?.[1];
    if (name !== undefined) indexes.set(name, { text, origin: file ?? "" });
  }
  for (const [key, text] of Object.entries(env)) {
    const name = /^CARGO_REGISTRIES_(.+)_INDEX$/.exec(key)?.[1];
    if (name !== undefined && text) indexes.set(name.toLowerCase().replaceAll("_", "-"), { text, origin: key });
  }
  let replaced: string | undefined = values.get("source.crates-io.replace-with");
  for (let round = 0; round < 8 && replaced !== undefined; round++) {
    const next = values.get(`source.${replaced}.replace-with`);
    if (next === undefined) break;
    replaced = next;
  }
  const mirror =
    replaced === undefined ? undefined : (values.get(`source.${replaced}.registry`) ?? indexes.get(replaced)?.text);
  const sameIndex = [...indexes].find(([, { text }]) => text === mirror)?.[0] ?? replaced ?? null;
  if (replaced !== undefined && mirror === undefined) throw unknown("cargo", `source.${replaced}.registry in ${file}`);
  const main = mirror === undefined ? await cargoDefault(machine) : { text: mirror, origin: file ?? "" };
  const of = (text: string, origin: string, name: string | null, secretOf: string | null) => {
    if (text.startsWith("sparse+"))
      return source("cargo", text.slice("sparse+".length), origin, name, credentialOf(secretOf));
    const problem = `${origin} names ${name ?? "a source"} of cargo that is not sparse; write sparse+https://…/ there, because an index in git cannot be read through the proxy`;
    throw new SandlotError("config_invalid", { path: "network.registries", problem });
  };
  return {
    sources: [
      of(main.text, main.origin, null, sameIndex),
      ...[...indexes].map(([name, { text, origin }]) => of(text, origin, name, name)),
    ],
    trustedFiles: [env.CARGO_HTTP_CAINFO, values.get("http.cainfo")].flatMap((path) => path || []),
  };
}

/** Cargo prints its default index only when it cannot be reached: a proxy that does not answer sees to that. */
async function cargoDefault(machine: Machine) {
  const nowhere = {
    CARGO_HTTP_PROXY: "http://127.0.0.1:9",
    CARGO_NET_RETRY: "0",
    CARGO_HTTP_TIMEOUT: "5",
    CARGO_HOME: ".",
  };
  const said = await machine.ask("cargo", ["install", "sandlot-asks-for-the-index"], nowhere);
  const found = /`(https:\/\/[^`]*\/)config\.json`/.exec(said?.stderr ?? "")?.[1];
  if (found !== undefined) return { text: `sparse+${found}`, origin: "cargo's own default" };
  throw unknown("cargo", "source.crates-io.replace-with and its source in ~/.cargo/config.toml");
}

async function go(machine: Machine): Promise<ToolSources> {
  const { environment: env, home, read } = machine;
  const file = env.GOENV || join(env.XDG_CONFIG_HOME || join(home, ".config"), "go/env");
  const lines = file === "off" ? "" : (read(file) ?? "");
  const kept = new Map(
    lines.split(/\r?\n/).flatMap((line) => {
      const pair = /^([A-Z0-9_]+)=(.*)$/.exec(line);
      return pair === null ? [] : [[pair[1] ?? "", pair[2] ?? ""] as const];
    }),
  );
  const configured = (name: string) => {
    const own = env[name];
    if (own) return { text: own, origin: name };
    const text = kept.get(name);
    return text ? { text, origin: file } : undefined;
  };
  const asked = configured("GOPROXY") && configured("GOSUMDB") ? null : await goDefaults(machine);
  const proxies = configured("GOPROXY") ?? asked?.GOPROXY;
  const urls = (proxies?.text ?? "").split(/[,|]/).filter((text) => /^https?:/.test(text));
  if (proxies === undefined || urls.length === 0)
    throw unknown("go", "GOPROXY, with the address of a proxy and not only direct");
  const database = configured("GOSUMDB") ?? asked?.GOSUMDB ?? { text: "off", origin: "no go on this machine" };
  const without = configured("GONOSUMDB")?.text ?? configured("GOPRIVATE")?.text ?? "";
  return {
    sources: urls.map((text) => source("go", text, proxies.origin, null, netrc(machine))),
    trustedFiles: [],
    checksums: { database: database.text, origin: database.origin, without },
  };
}

async function goDefaults(machine: Machine) {
  const nothing = { GOENV: "off", GOTOOLCHAIN: "local", GOFLAGS: "", GOTELEMETRY: "off", GOCACHE: "off" };
  for (const program of ["go", "/usr/local/go/bin/go"]) {
    const said = await machine.ask(program, ["env", "GOPROXY", "GOSUMDB"], nothing);
    const [proxy, database] = (said?.stdout ?? "").split("\n");
    const origin = "go's own default";
    if (proxy && database) return { GOPROXY: { text: proxy, origin }, GOSUMDB: { text: database, origin } };
  }
  return null;
}

function source(
  tool: RegistryTool,
  text: string,
  origin: string,
  name: string | null,
  credentialOf: (url: URL) => RegistryCredential | null,
): Source {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) {
    const problem = `${origin} names no http or https address for ${tool}`;
    throw new SandlotError("config_invalid", { path: "network.registries", problem });
  }
  const [user, password] = [decodeURIComponent(url.username), decodeURIComponent(url.password)];
  url.username = url.password = url.hash = "";
  const own = user === "" && password === "" ? null : basicOf(user, password, origin);
  return { tool, url: url.href, origin, name, credential: own ?? credentialOf(url) };
}

function netrc({ environment, home, read }: Machine): (url: URL) => RegistryCredential | null {
  const file = environment.NETRC || join(home, ".netrc");
  const entries: ReadonlyMap<string, NetrcEntry> = parseNetrc(read(file) ?? "");
  return ({ hostname }) => {
    const entry = entries.get(hostname);
    return entry === undefined ? null : basicOf(entry.login, entry.password, file);
  };
}

function basicOf(user: string, password: string, origin: string): RegistryCredential {
  const text = Buffer.from(`${user}:${password}`).toString("base64");
  return { origin, authorization: `Basic ${text}`, values: hidden(text, password === "" ? user : password) };
}

function encoded(text: string, origin: string): RegistryCredential {
  const password = Buffer.from(text, "base64").toString().split(":").slice(1).join(":");
  return { origin, authorization: `Basic ${text}`, values: hidden(text, password) };
}

function bearer(token: string, origin: string): RegistryCredential {
  return { origin, authorization: `Bearer ${token}`, values: hidden(token) };
}

/** Cargo sends its token as it is. */
function plainToken(token: string, origin: string): RegistryCredential {
  return { origin, authorization: token, values: hidden(token, token.replace(/^\S+\s+/, "")) };
}

/** Shorter texts occur by chance in packages, and would be damaged there. */
const HIDDEN_MIN_LENGTH = 8;

function hidden(...texts: readonly string[]): readonly string[] {
  return [...new Set(texts)].filter((text) => text.length >= HIDDEN_MIN_LENGTH);
}

function unknown(tool: RegistryTool, setting: string): SandlotError {
  const problem = `nothing on this machine says where ${tool} reads packages, and ${tool} cannot be asked; set ${setting}`;
  return new SandlotError("config_invalid", { path: "network.registries", problem });
}
