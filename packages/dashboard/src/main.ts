/** Starts the dashboard, after what has to be set before any other module of it runs. */

import "./no-eval.ts";

await import("./start.tsx");
