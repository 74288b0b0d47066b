/** Requests to the previews' listener, under any host name. */

import { request as httpRequest, type IncomingHttpHeaders } from "node:http";

export interface PreviewAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export function requestPreview(
  previewUrl: string,
  url: URL,
  headers: Record<string, string> = {},
): Promise<PreviewAnswer> {
  const { port } = new URL(previewUrl);
  return new Promise((resolve, reject) => {
    const path = `${url.pathname}${url.search}`;
    const options = { host: "127.0.0.1", port, path, headers: { host: url.host, ...headers } };
    const sent = httpRequest(options, (answer) => {
      let body = "";
      answer.setEncoding("utf8").on("data", (piece: string) => (body += piece));
      answer.on("end", () => resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body }));
    });
    sent.on("error", reject).end();
  });
}

/** Follows a link once, and returns the headers that a browser would send from then on. */
export async function previewCookie(previewUrl: string, link: URL): Promise<string> {
  const { headers } = await requestPreview(previewUrl, link, { accept: "text/html" });
  return (headers["set-cookie"] ?? []).map((cookie) => cookie.split(";")[0]).join("; ");
}
