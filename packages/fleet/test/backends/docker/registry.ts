/**
 * A registry for tests, on the loopback, where an engine uses no TLS: it has one image, delivers its layer as slowly as
 * a test wants, and counts the requests. Any other name is unknown.
 */

import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { pack } from "tar-stream";

const MANIFEST = "application/vnd.docker.distribution.manifest.v2+json";
const CONFIG = "application/vnd.docker.container.image.v1+json";
const LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/** The first half of a layer, and the rest that waits for `finish`. */
const HALVES = 2;

export interface Registry {
  /** Of the available image. */
  readonly image: string;
  readonly missing: string;
  /** How often its layer was requested, and how many of these requests are still open. */
  asked(): number;
  waiting(): number;
  /** Delivers the rest, now and later. */
  finish(): void;
  close(): void;
}

/** `content` is the tar archive of the image's only layer. */
export async function startRegistry(content: Buffer, name: string): Promise<Registry> {
  const layer = gzipSync(content);
  const config = JSON.stringify({
    ...{ architecture: process.arch === "arm64" ? "arm64" : "amd64", os: "linux", config: {} },
    rootfs: { type: "layers", diff_ids: [digest(content)] },
  });
  const manifest = JSON.stringify({
    ...{ schemaVersion: 2, mediaType: MANIFEST },
    config: { mediaType: CONFIG, size: config.length, digest: digest(config) },
    layers: [{ mediaType: LAYER, size: layer.length, digest: digest(layer) }],
  });
  const half = Math.floor(layer.length / HALVES);
  const held = new Set<ServerResponse>();
  let [asked, isFinished] = [0, false];
  const server = createServer((request, response) => {
    const { url = "" } = request;
    if (url === "/v2/") response.end("{}");
    else if (url.endsWith(digest(config))) response.end(config);
    else if (url.endsWith(digest(layer))) {
      asked += 1;
      response.writeHead(200, { "content-length": layer.length });
      if (isFinished) return void response.end(layer);
      response.write(layer.subarray(0, half));
      held.add(response);
      response.once("close", () => held.delete(response));
    } else if (url.includes(`/${name}/manifests/`)) {
      const length = { "content-length": manifest.length, "docker-content-digest": digest(manifest) };
      response.writeHead(200, { "content-type": MANIFEST, ...length });
      response.end(request.method === "HEAD" ? undefined : manifest);
    } else response.writeHead(404).end('{"errors":[{"code":"NAME_UNKNOWN"}]}');
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    image: `127.0.0.1:${port}/${name}:1`,
    missing: `127.0.0.1:${port}/missing:1`,
    asked: () => asked,
    waiting: () => held.size,
    finish: () => {
      isFinished = true;
      for (const response of held) response.end(layer.subarray(half));
    },
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** A root with a shell and its libraries, taken from this machine. */
export async function shellArchive(libraries: readonly string[], filler: number): Promise<Buffer> {
  const tar = pack();
  for (const file of libraries) tar.entry({ name: file.slice(1), mode: 0o755 }, readFileSync(file));
  tar.entry({ name: "bin/sh", mode: 0o755 }, readFileSync("/bin/dash"));
  for (const directory of ["tmp", "var/tmp", "home/sandbox", "mnt", "run", "proc", "sys", "dev"])
    tar.entry({ name: directory, type: "directory", mode: 0o755 });
  // Incompressible content, so that the pull takes more than a moment.
  tar.entry({ name: "filler" }, randomBytes(filler));
  tar.finalize();
  const parts: Buffer[] = [];
  for await (const part of tar) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

function digest(content: string | Buffer): string {
  return `sha256:${createHash("sha256").update(content).digest("hex")}`;
}
