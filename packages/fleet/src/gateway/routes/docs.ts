/** The page at `/docs`: Swagger UI for the API, with nothing from another host. */

import { createReadStream } from "node:fs";
import { docsFile } from "../../package-files.ts";
import type { GatewayApp } from "../context.ts";

/** Relative, so that the page also works below a path of a proxy. */
const PAGE = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <title>Sandlot API</title>
    <link rel="stylesheet" href="./static/swagger-ui.css">
    <link rel="icon" type="image/png" href="./static/favicon-32x32.png">
  </head>
  <body>
    <div id="swagger-ui"></div>
    <script src="./static/swagger-ui-bundle.js"></script>
    <script src="./static/start.js"></script>
  </body>
</html>
`;
/** The page's URL may contain the key; the URL that the page fetches must not. */
const START = `const url = new URL("../openapi.json", location.origin + location.pathname).href;
SwaggerUIBundle({ url, dom_id: "#swagger-ui", deepLinking: true });
`;
const POLICY =
  "default-src 'none';script-src 'self';style-src 'self' 'unsafe-inline';img-src 'self' data:;" +
  "font-src 'self' data:;connect-src 'self';base-uri 'none';form-action 'none';frame-ancestors 'none'";
const FILES = {
  "swagger-ui.css": "text/css; charset=utf-8",
  "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
  "favicon-32x32.png": "image/png",
} as const;

export function docsRoutes(app: GatewayApp): void {
  const options = { config: { access: "docs" }, schema: { hide: true }, logLevel: "warn" } as const;
  app.get("/docs", options, (_request, reply) => reply.redirect("docs/"));
  app.get("/docs/", options, (_request, reply) =>
    reply.headers({ "content-type": "text/html; charset=utf-8", "content-security-policy": POLICY }).send(PAGE),
  );
  app.get("/docs/static/start.js", options, (_request, reply) =>
    reply.header("content-type", "text/javascript; charset=utf-8").send(START),
  );
  for (const [name, type] of Object.entries(FILES)) {
    app.get(`/docs/static/${name}`, options, (_request, reply) =>
      reply.header("content-type", type).send(createReadStream(docsFile(name))),
    );
  }
}
