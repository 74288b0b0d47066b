/** The addresses of the pages. What a page filters and sorts by is a part of its address. */

import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Outlet } from "@tanstack/react-router";
import { OverviewPage } from "./pages/overview.tsx";
import { SandboxesPage } from "./pages/sandboxes.tsx";
import { ThreadsPage } from "./pages/threads.tsx";
import { ErrorNotice } from "./parts/notice.tsx";
import { Shell } from "./shell.tsx";
import { texts } from "./texts.ts";

const text = (value: unknown): string | undefined =>
  typeof value === "string" || typeof value === "number" ? String(value).slice(0, 200) : undefined;

interface ListSearch {
  readonly q?: string | undefined;
  readonly state?: string | undefined;
  readonly sort?: string | undefined;
}

const listSearch = ({ q, state, sort }: Readonly<Record<string, unknown>>): ListSearch => ({
  q: text(q),
  state: text(state),
  sort: text(sort),
});

const root = createRootRoute({
  component: () => (
    <Shell>
      <Outlet />
    </Shell>
  ),
  notFoundComponent: () => <p className="empty">{texts.notFound}</p>,
  errorComponent: ({ error }) => <ErrorNotice error={error} />,
});
const overview = createRoute({ getParentRoute: () => root, path: "/", component: OverviewPage });
export const sandboxes = createRoute({
  getParentRoute: () => root,
  path: "/sandboxes",
  validateSearch: listSearch,
  component: SandboxesPage,
});
export const threads = createRoute({
  getParentRoute: () => root,
  path: "/threads",
  validateSearch: listSearch,
  component: ThreadsPage,
});
const thread = createRoute({
  getParentRoute: () => root,
  path: "/threads/$user/$thread",
  validateSearch: ({ tab, path }: Readonly<Record<string, unknown>>): { tab?: string; path?: string } => ({
    ...(text(tab) !== undefined && { tab: String(tab) }),
    ...(typeof path === "string" && { path: path.slice(0, 4_096) }),
  }),
  component: lazyRouteComponent(() => import("./pages/thread.tsx"), "ThreadPage"),
});
const administration = createRoute({
  getParentRoute: () => root,
  path: "/administration",
  component: lazyRouteComponent(() => import("./pages/administration.tsx"), "AdministrationPage"),
});
const administrationSection = createRoute({
  getParentRoute: () => root,
  path: "/administration/$section",
  component: lazyRouteComponent(() => import("./pages/administration.tsx"), "AdministrationPage"),
});

export const router = createRouter({
  routeTree: root.addChildren([overview, sandboxes, threads, thread, administration, administrationSection]),
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
