/** Routes of the AIO API. A `{name}` in a path matches one part. */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Query } from "../wire/routes.ts";

/** `parameters` are the query's, and the named parts of the path. */
export type AioHandler = (
  request: IncomingMessage,
  response: ServerResponse,
  parameters: Query,
) => Promise<void> | void;

export type AioRoutes = Readonly<Record<string, AioHandler>>;

export function findRoute(
  routes: AioRoutes,
  method: string,
  path: string,
): { readonly handler: AioHandler; readonly parameters: Query } | null {
  const exact = Object.hasOwn(routes, `${method} ${path}`) ? routes[`${method} ${path}`] : undefined;
  if (exact !== undefined) return { handler: exact, parameters: {} };
  for (const [name, handler] of Object.entries(routes)) {
    const parameters = match(name, `${method} ${path}`);
    if (parameters !== null) return { handler, parameters };
  }
  return null;
}

/** The other methods that the path has. */
export function methodsOf(routes: AioRoutes, path: string): readonly string[] {
  return METHODS.filter((method) => findRoute(routes, method, path) !== null);
}

const METHODS = ["GET", "POST", "DELETE"];

function match(pattern: string, name: string): Query | null {
  const [wanted, given] = [pattern.split("/"), name.split("/")];
  if (wanted.length !== given.length || !pattern.includes("{")) return null;
  const parameters: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index] ?? "";
    if (part.startsWith("{")) parameters[part.slice(1, -1)] = decoded(value);
    else if (part !== value) return null;
  }
  return parameters;
}

/** Undecodable text is unchanged. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
