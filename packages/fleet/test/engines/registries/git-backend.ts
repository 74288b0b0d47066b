/** git's own HTTP backend, for bare repositories below a directory. */

import { spawn } from "node:child_process";
import type { IncomingMessage, ServerResponse } from "node:http";

export function serveGit(root: string, request: IncomingMessage, response: ServerResponse): void {
  const url = new URL(request.url ?? "", "https://git");
  const backend = spawn("git", ["http-backend"], {
    env: {
      PATH: process.env.PATH,
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: "1",
      PATH_INFO: url.pathname,
      QUERY_STRING: url.search.slice(1),
      REQUEST_METHOD: request.method,
      CONTENT_TYPE: request.headers["content-type"] ?? "",
      HTTP_CONTENT_ENCODING: String(request.headers["content-encoding"] ?? ""),
      GIT_PROTOCOL: String(request.headers["git-protocol"] ?? ""),
      REMOTE_USER: "dev",
    },
    stdio: ["pipe", "pipe", "inherit"],
  });
  request.pipe(backend.stdin);
  backend.stdin.on("error", () => {});
  let head = Buffer.alloc(0);
  backend.stdout.on("data", function first(chunk: Buffer) {
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf("\r\n\r\n");
    if (end < 0) return;
    backend.stdout.off("data", first);
    let status = 200;
    for (const line of head.subarray(0, end).toString().split("\r\n")) {
      const [name = "", value = ""] = line.split(/:\s*/, 2);
      if (name.toLowerCase() === "status") status = Number.parseInt(value, 10);
      else response.setHeader(name, value);
    }
    response.writeHead(status);
    response.write(head.subarray(end + 4));
    backend.stdout.pipe(response);
  });
}
