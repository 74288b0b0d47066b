/**
 * Registries of four protocols on the loopback of a network namespace: an index that wants credentials, and a second
 * host for the files, which must never see them.
 */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:https";
import { join } from "node:path";
import { ChecksumDatabase, sumOfModule } from "./checksum-database.ts";

export const INDEX = { host: "index.test", address: "10.77.0.1" };
export const FILES = { host: "files.test", address: "10.77.0.2" };
export const PORT = 8443;
export const PASSWORD = "pw-7Qz9vX2mLp4Rt8Wc1Yb6Nd3H";
export const TOKEN = "tok-Kd83hfLw92mXq47Zr6Tn1Vb5";

interface Seen {
  readonly host: string;
  readonly method: string;
  readonly path: string;
  readonly authorization: string | null;
}

export interface RegistryOptions {
  readonly wantsCredentials: boolean;
  /** What Go's checksum database says of the module: the truth, or another sum. */
  readonly checksums?: "right" | "wrong";
}

export interface Registries {
  /** The value of GOSUMDB. */
  readonly checksumDatabase: string;
  readonly seen: Seen[];
  close(): void;
}

export async function serveRegistries(
  directory: string,
  keys: { certificatePem: string; keyPem: string },
  { wantsCredentials, checksums = "right" }: RegistryOptions,
): Promise<Registries> {
  const packages = makePackages(directory);
  const database = new ChecksumDatabase(FILES.host, `https://${FILES.host}:${PORT}/sums`);
  const zip = packages["hello-v1.0.0.zip"];
  const sum = checksums === "right" && zip !== undefined ? sumOfModule(HELLO) : sumOfModule({});
  database.add("example.test/hello", "v1.0.0", sum, sumOfModule({ "go.mod": HELLO_MOD }));
  const seen: Seen[] = [];
  const server = createServer({ cert: keys.certificatePem, key: keys.keyPem }, (request, response) => {
    const [host = ""] = (request.headers.host ?? "").split(":");
    const authorization = request.headers.authorization ?? null;
    seen.push({ host, method: request.method ?? "", path: request.url ?? "", authorization });
    if (host === FILES.host && (request.url ?? "").startsWith("/sums/")) {
      const found = database.answer((request.url ?? "").slice("/sums".length));
      response.writeHead(found === null ? 404 : 200).end(found ?? "not here");
      return;
    }
    if (host === FILES.host) {
      sendFile(packages, request, response);
      return;
    }
    const right = [`Basic ${Buffer.from(`reader:${PASSWORD}`).toString("base64")}`, `Bearer ${TOKEN}`, TOKEN];
    if (wantsCredentials && !right.includes(authorization ?? "")) {
      response.writeHead(401, { "www-authenticate": "Basic" }).end("who are you?");
    } else serveIndex(packages, request, response, wantsCredentials);
  });
  await new Promise<void>((resolve) => server.listen(PORT, "0.0.0.0", resolve));
  return { seen, checksumDatabase: database.name, close: () => server.close() };
}

type Packages = Readonly<Record<string, Buffer>>;

function sendFile(packages: Packages, request: IncomingMessage, response: ServerResponse): unknown {
  const content = packages[new URL(request.url ?? "", "http://files").pathname.split("/").at(-1) ?? ""];
  return response
    .writeHead(content === undefined ? 404 : 200, { "content-type": "application/octet-stream" })
    .end(content);
}

function serveIndex(
  packages: Packages,
  request: IncomingMessage,
  response: ServerResponse,
  isClosed: boolean,
): unknown {
  const url = (request.url ?? "").split("?")[0] ?? "";
  const files = `https://${FILES.host}:${PORT}`;
  const json = (value: unknown) => {
    return response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value));
  };
  const onward = (name: string) => {
    return response.writeHead(302, { location: `${files}/storage/${name}?signed=1` }).end();
  };
  const page = (html: string) => {
    return response
      .writeHead(200, { "content-type": "text/html" })
      .end(`<!DOCTYPE html><html><body>${html}</body></html>`);
  };
  if (url === "/pip/simple/") return page('<a href="samplepy/">samplepy</a>');
  if (url === "/pip/simple/samplepy/")
    return page(`<a href="${files}/packages/ab/cd/samplepy-1.0-py3-none-any.whl">samplepy-1.0-py3-none-any.whl</a>`);
  if (url === "/npm/-/v1/search") return json({ objects: [{ package: { name: "samplejs" } }] });
  if (url === "/npm/samplejs") {
    const tarball = `https://${INDEX.host}:${PORT}/npm/samplejs/-/samplejs-1.0.0.tgz`;
    const integrity = `sha512-${createHash("sha512").update(packages["samplejs-1.0.0.tgz"]!).digest("base64")}`;
    const version = { name: "samplejs", version: "1.0.0", bin: { samplejs: "cli.js" }, dist: { tarball, integrity } };
    return json({ name: "samplejs", "dist-tags": { latest: "1.0.0" }, versions: { "1.0.0": version } });
  }
  if (url.endsWith(".tgz")) return onward("samplejs-1.0.0.tgz");
  if (url === "/cargo/index/config.json") {
    const dl = `https://${INDEX.host}:${PORT}/cargo/dl/{crate}/{version}/download`;
    return json({ dl, ...(isClosed && { "auth-required": true }) });
  }
  if (url === "/cargo/index/sa/mp/samplers") {
    const cksum = createHash("sha256").update(packages["samplers-1.0.0.crate"]!).digest("hex");
    const line = { name: "samplers", vers: "1.0.0", deps: [], cksum, features: {}, yanked: false };
    return response.writeHead(200).end(`${JSON.stringify(line)}\n`);
  }
  if (url.startsWith("/cargo/dl/")) return onward("samplers-1.0.0.crate");
  if (url === "/go/example.test/hello/@v/list") return response.writeHead(200).end("v1.0.0\n");
  if (/^\/go\/example\.test\/hello\/@(?:latest|v\/v1\.0\.0\.info)$/.test(url))
    return json({ Version: "v1.0.0", Time: "2024-01-01T00:00:00Z" });
  if (url === "/go/example.test/hello/@v/v1.0.0.mod") return response.writeHead(200).end(HELLO_MOD);
  if (url === "/go/example.test/hello/@v/v1.0.0.zip") return onward("hello-v1.0.0.zip");
  return response.writeHead(404).end("no such package");
}

const HELLO_MOD = "module example.test/hello\n\ngo 1.20\n";
const HELLO = {
  "example.test/hello@v1.0.0/go.mod": HELLO_MOD,
  "example.test/hello@v1.0.0/main.go":
    'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("go from the registry") }\n',
};

const ZIP = `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as made:
    for pair in sys.argv[2:]:
        name, text = pair.split("=", 1)
        made.writestr(name, text)
`;

function makePackages(directory: string): Packages {
  const at = (name: string) => join(directory, name);
  const zip = (name: string, files: Readonly<Record<string, string>>): void => {
    execFileSync("python3", ["-c", ZIP, at(name), ...Object.entries(files).map(([path, text]) => `${path}=${text}`)]);
  };
  const tar = (name: string, top: string, files: Readonly<Record<string, string>>): void => {
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(join(directory, "made", top, path, ".."), { recursive: true });
      writeFileSync(join(directory, "made", top, path), text);
    }
    execFileSync("tar", ["czf", at(name), "-C", join(directory, "made"), top]);
  };
  const info = "samplepy-1.0.dist-info";
  zip("samplepy-1.0-py3-none-any.whl", {
    "samplepy.py": 'said = "python from the registry"\n',
    [`${info}/METADATA`]: "Metadata-Version: 2.1\nName: samplepy\nVersion: 1.0\n",
    [`${info}/WHEEL`]: "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    [`${info}/RECORD`]: "",
  });
  tar("samplejs-1.0.0.tgz", "package", {
    "package.json": JSON.stringify({ name: "samplejs", version: "1.0.0", bin: { samplejs: "cli.js" } }),
    "cli.js": '#!/usr/bin/env node\nconsole.log("node from the registry");\n',
  });
  tar("samplers-1.0.0.crate", "samplers-1.0.0", {
    "Cargo.toml": '[package]\nname = "samplers"\nversion = "1.0.0"\nedition = "2021"\n',
    "src/main.rs": 'fn main() { println!("rust from the registry"); }\n',
  });
  zip("hello-v1.0.0.zip", HELLO);
  const names = ["samplepy-1.0-py3-none-any.whl", "samplejs-1.0.0.tgz", "samplers-1.0.0.crate", "hello-v1.0.0.zip"];
  return Object.fromEntries(names.map((name) => [name, readFileSync(at(name))]));
}

export interface ToolConfiguration {
  readonly authorityFile: string;
  readonly withCredentials: boolean;
  /** The value of GOSUMDB. */
  readonly checksumDatabase: string;
}

/** The configuration of each tool, as a person of this machine would have it. */
export function writeToolConfiguration(
  home: string,
  { authorityFile, withCredentials, checksumDatabase }: ToolConfiguration,
): void {
  const base = `https://${INDEX.host}:${PORT}`;
  const write = (path: string, ...lines: string[]): void => {
    mkdirSync(join(home, path, ".."), { recursive: true });
    writeFileSync(join(home, path), `${lines.join("\n")}\n`);
  };
  const user = withCredentials ? `reader:${PASSWORD}@` : "";
  write(
    ".config/pip/pip.conf",
    "[global]",
    `index-url = https://${user}${INDEX.host}:${PORT}/pip/simple`,
    `cert = ${authorityFile}`,
  );
  write(
    ".npmrc",
    `registry=${base}/npm/`,
    ...(withCredentials ? [`//${INDEX.host}:${PORT}/npm/:_authToken=${TOKEN}`] : []),
  );
  write(
    ".cargo/config.toml",
    "[source.crates-io]",
    'replace-with = "mirror"',
    "[source.mirror]",
    `registry = "sparse+${base}/cargo/index/"`,
    "[registries.mirror]",
    `index = "sparse+${base}/cargo/index/"`,
  );
  if (withCredentials) write(".cargo/credentials.toml", "[registries.mirror]", `token = "${TOKEN}"`);
  write(".config/go/env", `GOPROXY=${base}/go,direct`, `GOSUMDB=${checksumDatabase}`);
  if (withCredentials) write(".netrc", `machine ${INDEX.host}`, "login reader", `password ${PASSWORD}`);
}
