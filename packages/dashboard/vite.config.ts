/**
 * The dashboard's files, from source: `npm run build` makes `dist/`, which a gateway serves. For work on the pages,
 * `npm run dev --workspace packages/dashboard` reloads them as they change, and passes requests on to a gateway.
 */
import { defineConfig } from "vite";

const GATEWAY = process.env.SANDLOT_URL ?? "http://127.0.0.1:8750";
/** The gateway accepts its own pages only. */
const asOwnPage = { target: GATEWAY, ws: true, changeOrigin: true, headers: { origin: new URL(GATEWAY).origin } };

export default defineConfig({
  // The packages of this repository from source: their builds may not be there yet.
  resolve: { conditions: ["sandlot-source", "browser", "module", "import", "default"] },
  server: { proxy: { "/v1": asOwnPage, "/healthz": asOwnPage } },
  build: {
    target: "es2023",
    // Each file from the gateway; data: URLs for scripts or styles would need a weaker policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // The terminal is a part of its own, loaded when it is opened.
    chunkSizeWarningLimit: 900,
    rolldownOptions: {
      // Directives for servers, which mean nothing here, one message for each file of a library.
      onLog: (level, log, next) => {
        if (log.code !== "MODULE_LEVEL_DIRECTIVE") next(level, log);
      },
    },
  },
});
