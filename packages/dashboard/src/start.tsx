/** Shows the dashboard: sign-in, or the pages. */

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import { applyTheme } from "./theme.ts";

applyTheme();
const root = document.getElementById("root");
if (root === null) throw new Error("the page has no root");
// The client repeats what may be repeated; an error here is one to show.
const queries = new QueryClient({ defaultOptions: { queries: { retry: false, refetchOnWindowFocus: false } } });
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
