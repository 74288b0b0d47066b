/** Serves the built site on loopback, until it is interrupted. For reading it before it is published. */
import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const TYPES = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".woff2": "font/woff2",
};

export function serveSite(folder, port = Number(process.env.PORT ?? 8760)) {
  const server = createServer(({ url = "/" }, response) => {
    const path = normalize(decodeURIComponent(new URL(url, "http://site").pathname));
    const candidates = [path, `${path}.html`, join(path, "index.html")].map((one) => join(folder, one));
    const file = candidates.find((one) => one.startsWith(folder) && existsSync(one) && statSync(one).isFile());
    if (file === undefined) return response.writeHead(404, { "content-type": "text/plain" }).end("no such page\n");
    response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream" });
    return createReadStream(file).pipe(response);
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.once("close", resolve);
    server.listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
  });
}
