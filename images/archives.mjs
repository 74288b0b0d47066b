/**
 * Builds the images of a Kubernetes installation without a registry and without an engine: archives that `docker load`,
 * `ctr images import` and `podman load` read, each with a list of what is in it (SPDX 2.3).
 *
 *   npm run build && npm run images                                      all of them, in dist/images
 *   node images/archives.mjs --to DIR --only sandbox-daemon,gateway       some
 *   node images/archives.mjs --to DIR --registry images.example.org/x   other names, for an air-gapped registry
 *
 *   sandlot/sandbox-daemon:1   `sandbox/` and the daemon: what sandboxes run
 *   sandlot/daemon:1           the daemon with its Node alone: the source of `daemon: init-copy`
 *   sandlot/aio:1              `aio/` on top of `sandbox/`
 *   sandlot/gateway:1          the gateway and the egress proxy
 *
 * Invariants
 * - An image is of the platform that builds it (amd64 or arm64): its Node is the one that the lockfile pins there.
 * - No image starts as root. The same content gives the same archive.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  copyFileSync,
  cpSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { pack } from "../scripts/pack.mjs";
import { pinnedNode, ROOT } from "../scripts/runtime.mjs";
import { archive, recipe } from "./build.mjs";
import { debianPackages, npmPackages, spdx } from "./sbom.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
const CACHE = join(ROOT, ".cache");
const DAEMON = join(ROOT, "packages/sandboxd/dist");
const BUNDLE = join(ROOT, "packages/fleet/dist/bundle");
/** The account of every image, as `kubernetes.uid`. */
const ACCOUNT = 10_001;
/** Every file has this time, so that the same content gives the same archive. */
const EPOCH_SECONDS = 1_577_836_800;
const CREATED = "2020-01-01T00:00:00Z";
const ARCHITECTURES = { x64: "amd64", arm64: "arm64" };
/** The dynamic loader, where Debian has it. */
const LOADERS = {
  amd64: "./usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
  arm64: "./usr/lib/aarch64-linux-gnu/ld-linux-aarch64.so.1",
};
const PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const TAR = ["--sort=name", "--numeric-owner", `--mtime=@${EPOCH_SECONDS}`];
/** What the gateway's image has beside Debian's essential packages. */
const GATEWAY_PACKAGES = ["ca-certificates", "libstdc++6"];
/** Optional packages of `sandlot` that a cluster uses: both shared stores. */
const PEERS = ["@redis/client", "pg"];

const IMAGES = {
  "sandbox-daemon": sandboxImage,
  daemon: daemonImage,
  aio: aioImage,
  gateway: gatewayImage,
};

function sandboxImage(work) {
  const root = archive();
  const daemon = daemonLayer(work, root);
  return {
    layers: [root, daemon],
    config: { ...sandboxConfig(), User: `${ACCOUNT}:${ACCOUNT}`, WorkingDir: "/", Cmd: ["/bin/bash"] },
    contents: [...debianPackages(root), ...daemonContents()],
  };
}

function daemonImage(work) {
  const root = smallDebian();
  return {
    layers: [root, daemonLayer(work, root)],
    config: { Env: [PATH], User: `${ACCOUNT}:${ACCOUNT}`, WorkingDir: "/", Cmd: ["/bin/sh"] },
    contents: [...debianPackages(root), ...daemonContents()],
  };
}

function aioImage(work) {
  const root = archive();
  const layer = staged(work, "aio", (at) => {
    installDaemon(at("opt/sandlot"));
    for (const name of ["start.sh", "configuration.cjs"])
      copyFileSync(join(HERE, "aio", name), join(at("opt/sandlot"), name));
    symlinkSync("/usr/local/bin/node", join(at("opt/sandlot"), "sandboxd"));
    const loader = readFromArchive(root, LOADERS[architecture()]);
    if (loader === undefined) throw new Error("the sandbox image has no loader");
    writeFileSync(join(at("opt/sandlot"), "loader"), loader, { mode: 0o111 });
    for (const name of ["workspace", "uploads", "outputs"]) at(`mnt/user-data/${name}`, 1_000);
    for (const name of ["user-data", "acp-workspace"]) at(`mnt/${name}`, 1_000);
    at("mnt/skills");
  });
  return {
    layers: [root, layer],
    config: {
      ...sandboxConfig(),
      User: "1000:1000",
      WorkingDir: "/mnt/user-data/workspace",
      StopSignal: "SIGKILL",
      ExposedPorts: { "8080/tcp": {} },
      Entrypoint: ["/bin/sh", "/opt/sandlot/start.sh"],
      Cmd: [],
    },
    contents: [...debianPackages(root), ...daemonContents()],
  };
}

function gatewayImage(work) {
  const root = smallDebian();
  const packed = join(work, "packed");
  const tarballs = pack(packed).map(({ tarball }) => tarball);
  const lock = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")).packages;
  const peers = [...PEERS, "@kubernetes/client-node"].flatMap((name) => {
    const version = lock[`node_modules/${name}`]?.version;
    return version === undefined ? [] : [`${name}@${version}`];
  });
  const prefix = join(work, "installed");
  mkdirSync(prefix);
  run("npm", ["install", "--prefix", prefix, "--ignore-scripts", "--no-audit", "--no-fund", ...tarballs, ...peers]);
  const layer = staged(work, "gateway", (at) => {
    copyFileSync(neededNode(), join(at("usr/local/bin"), "node"));
    cpSync(join(prefix, "node_modules"), join(at("opt/sandlot"), "node_modules"), {
      recursive: true,
      verbatimSymlinks: true,
    });
    symlinkSync("/opt/sandlot/node_modules/sandlot/bin/sandlot.mjs", join(at("usr/local/bin"), "sandlot"));
    at("var/lib/sandlot", ACCOUNT);
    addAccount(at, root, `sandlot:x:${ACCOUNT}:${ACCOUNT}::/var/lib/sandlot:/usr/sbin/nologin`);
  });
  return {
    layers: [root, layer],
    config: {
      Env: [PATH, "SANDLOT_HOME=/var/lib/sandlot", "SANDLOT_CONFIG=/etc/sandlot/sandlot.yaml", "NODE_ENV=production"],
      User: `${ACCOUNT}:${ACCOUNT}`,
      WorkingDir: "/",
      ExposedPorts: { "8750/tcp": {}, "3129/tcp": {} },
      Cmd: ["sandlot", "serve", "--host", "0.0.0.0", "--behind-proxy", "--log-level", "info"],
    },
    contents: [
      ...debianPackages(root),
      ...npmPackages(join(prefix, "node_modules/.package-lock.json"), join(BUNDLE, "THIRD_PARTY_LICENSES.txt")),
      node(),
    ],
  };
}

/** The daemon in `/opt/sandlot`, with a Node of its own and an account. */
function daemonLayer(work, root) {
  return staged(work, "daemon", (at) => {
    installDaemon(at("opt/sandlot"));
    // Not called node: `pkill node` inside must end the programs of an agent only.
    copyFileSync(neededNode(), join(at("opt/sandlot"), "d"));
    addAccount(at, root, `agent:x:${ACCOUNT}:${ACCOUNT}::/mnt/user-data/.home:/bin/bash`);
    for (const name of ["user-data", "acp-workspace", "skills"]) at(`mnt/${name}`);
  });
}

function installDaemon(folder) {
  for (const name of ["sandboxd.cjs", "supervisor.sh", "pty.node", "koffi.node"]) {
    if (!existsSync(join(DAEMON, name))) throw new Error(`${join(DAEMON, name)} is missing: npm run build`);
    copyFileSync(join(DAEMON, name), join(folder, name));
  }
}

function addAccount(at, root, line) {
  const [name] = line.split(":");
  const lines = { passwd: line, group: `${name}:x:${ACCOUNT}:` };
  for (const [file, added] of Object.entries(lines)) {
    const before = readFromArchive(root, `./etc/${file}`)?.toString("utf8") ?? "";
    writeFileSync(join(at("etc"), file), `${before}${added}\n`, { mode: 0o644 });
  }
}

/** Debian's essential packages with the gateway's: built once, kept by its content. */
function smallDebian() {
  const { debian } = recipe();
  const key = createHash("sha256").update(`${debian} ${GATEWAY_PACKAGES.join()} 1`).digest("hex").slice(0, 16);
  const kept = join(CACHE, `small-debian-${key}.tar`);
  if (existsSync(kept)) return kept;
  mkdirSync(CACHE, { recursive: true });
  const coming = `${kept}.${process.pid}.tar`;
  const rest =
    "rm -rf usr/share/doc/* usr/share/man usr/share/info usr/share/locale/* var/cache/* var/lib/apt/lists/* var/log/*";
  try {
    run("mmdebstrap", [
      ...["--variant=essential", `--include=${GATEWAY_PACKAGES.join(",")}`],
      ...["--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"],
      ...[`--customize-hook=cd "$1" && ${rest} && find . -xdev -type f -perm /6000 -exec chmod a-s {} +`],
      ...[debian, coming],
    ]);
    renameSync(coming, kept);
  } finally {
    rmSync(coming, { force: true });
  }
  return kept;
}

/** A layer from a folder that `fill` fills. `at` makes a directory of it, which may belong to another account. */
function staged(work, name, fill) {
  const folder = mkdtempSync(join(work, `${name}-`));
  const owned = [];
  fill((path, owner = 0) => {
    mkdirSync(join(folder, path), { recursive: true, mode: 0o755 });
    if (owner !== 0) owned.push([path, owner]);
    return join(folder, path);
  });
  const target = `${folder}.tar`;
  run("tar", [...TAR, "--owner=0", "--group=0", "-C", folder, "-cf", target, "."]);
  for (const [path, owner] of owned) {
    const args = [
      ...TAR,
      `--owner=${owner}`,
      `--group=${owner}`,
      "--no-recursion",
      "-C",
      folder,
      "-rf",
      target,
      `./${path}`,
    ];
    run("tar", args);
  }
  return target;
}

/** The archive of an image: layers, configuration and a manifest, as `docker save` writes them. */
function writeImage(work, target, reference, { layers, config }) {
  const folder = mkdtempSync(join(work, "image-"));
  const digests = layers.map((layer) => {
    const digest = createHash("sha256").update(readFileSync(layer)).digest("hex");
    mkdirSync(join(folder, digest));
    place(layer, join(folder, digest, "layer.tar"));
    return digest;
  });
  const described = {
    architecture: architecture(),
    os: "linux",
    created: CREATED,
    config,
    rootfs: { type: "layers", diff_ids: digests.map((digest) => `sha256:${digest}`) },
    history: digests.map(() => ({ created: CREATED })),
  };
  const text = JSON.stringify(described);
  const id = createHash("sha256").update(text).digest("hex");
  writeFileSync(join(folder, `${id}.json`), text);
  const manifest = [
    { Config: `${id}.json`, RepoTags: [reference], Layers: digests.map((digest) => `${digest}/layer.tar`) },
  ];
  writeFileSync(join(folder, "manifest.json"), JSON.stringify(manifest));
  run("tar", [...TAR, "--owner=0", "--group=0", "--hard-dereference", "-C", folder, "-cf", `${target}.new`, "."]);
  renameSync(`${target}.new`, target);
  rmSync(folder, { recursive: true });
  return `sha256:${id}`;
}

function place(from, to) {
  try {
    linkSync(from, to);
  } catch {
    copyFileSync(from, to);
  }
}

/** How a container of the sandbox image is started, as its Dockerfile says. */
function sandboxConfig() {
  const env = recipe().changes.flatMap((change) => /^ENV (\w+=\S+)$/.exec(change)?.slice(1) ?? []);
  return { Env: env };
}

function architecture() {
  const found = ARCHITECTURES[process.arch];
  if (found === undefined) throw new Error(`there are no images for ${process.arch}`);
  return found;
}

function neededNode() {
  const found = pinnedNode();
  if (found === undefined || !existsSync(found))
    throw new Error("the repository has no Node for this platform: npm install");
  return found;
}

function node() {
  const { stdout } = spawnSync(neededNode(), ["--version"], { encoding: "utf8" });
  return { kind: "generic", name: "node", version: stdout.trim().replace(/^v/, ""), license: "MIT" };
}

function daemonContents() {
  const { version, license } = JSON.parse(readFileSync(join(ROOT, "packages/sandboxd/package.json"), "utf8"));
  const { packages } = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8"));
  const inside = Object.entries(packages).flatMap(([path, found]) => {
    const [, name] = /^node_modules\/(ws|koffi|node-pty|@[^/]+\/node-pty[^/]*|@koromix\/koffi[^/]*)$/.exec(path) ?? [];
    return name === undefined || found.optional === true
      ? []
      : [{ kind: "npm", name, version: found.version, license: found.license }];
  });
  return [{ kind: "npm", name: "@sandlot/sandboxd", version, license }, ...inside, node()];
}

/** The content of one file of an archive, or `undefined`. */
function readFromArchive(file, path) {
  const read = spawnSync("tar", ["-xOf", file, path], { maxBuffer: 64 * 1024 * 1024 });
  return read.status === 0 ? read.stdout : undefined;
}

function run(program, args) {
  const { status, stderr, error } = spawnSync(program, args, { stdio: ["ignore", "ignore", "pipe"], encoding: "utf8" });
  if (error !== undefined) throw new Error(`${program} could not be run: ${error.message}`);
  if (status !== 0) throw new Error(`${program} failed: ${stderr.slice(-2_000)}`);
}

export function buildArchives({ to, only = Object.keys(IMAGES), registry = "sandlot" }) {
  const unknown = only.filter((name) => !Object.hasOwn(IMAGES, name));
  if (unknown.length > 0)
    throw new Error(`there is no image ${unknown[0]}; there are ${Object.keys(IMAGES).join(", ")}`);
  mkdirSync(to, { recursive: true });
  const work = mkdtempSync(join(tmpdir(), "sandlot-images-"));
  try {
    return only.map((name) => {
      const reference = `${registry}/${name}:1`;
      const target = join(to, `${name}.tar`);
      const image = IMAGES[name](work);
      const id = writeImage(work, target, reference, image);
      writeFileSync(`${target}.spdx.json`, spdx(reference, id, CREATED, image.contents));
      return { reference, target, sizeBytes: statSync(target).size, packages: image.contents.length };
    });
  } finally {
    for (const name of readdirSync(work)) rmSync(join(work, name), { recursive: true, force: true });
    rmSync(work, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = { type: "string" };
  const { values } = parseArgs({ options: { to: text, only: text, registry: text } });
  if (values.to === undefined) throw new Error("--to names the folder of the archives");
  const only = values.only?.split(",");
  const options = {
    to: resolve(values.to),
    ...(only && { only }),
    ...(values.registry && { registry: values.registry }),
  };
  for (const { reference, target, sizeBytes, packages } of buildArchives(options))
    process.stdout.write(`${reference}  ${target}  ${Math.round(sizeBytes / 1e6)} MB, ${packages} packages\n`);
}
