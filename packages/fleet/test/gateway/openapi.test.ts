/** The OpenAPI document: linters and generators find no fault in it, and it matches the gateway. */

import { createConfig, lintFromString } from "@redocly/openapi-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openStage, type Stage } from "./support/stage.ts";

interface Operation {
  readonly operationId?: string;
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
  readonly responses: Record<string, { readonly content?: Record<string, unknown> }>;
  readonly requestBody?: { readonly content: Record<string, unknown> };
}

interface OpenApi {
  readonly paths: Record<string, Record<string, Operation>>;
  readonly components: { readonly schemas: Record<string, { readonly additionalProperties?: unknown }> };
}

let stage: Stage;
let document: OpenApi;

beforeAll(async () => {
  stage = await openStage();
  document = await stage.operator.ask<OpenApi>(200, "GET", "/openapi.json");
});
afterAll(() => stage.done());

const operations = () =>
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );
const typesOf = (path: string, method: string, status: string) =>
  Object.keys(document.paths[path]?.[method]?.responses[status]?.content ?? {});

test("redocly finds no error", async () => {
  const config = await createConfig({ extends: ["recommended"] });
  const problems = await lintFromString({ source: JSON.stringify(document), config });
  const errors = problems
    .filter(({ severity }) => severity === "error")
    .map(({ ruleId, message }) => `${ruleId}: ${message}`);
  expect(errors).toEqual([]);
  const rules = problems.map(({ ruleId }) => ruleId);
  for (const rule of ["operation-operationId", "no-unused-components", "path-parameters-defined", "no-empty-servers"])
    expect(rules).not.toContain(rule);
});

test("every operation has a name of its own, and no path a star", () => {
  const ids = operations().map(({ operation }) => operation.operationId ?? "");
  expect(ids.every((id) => /^[a-z][A-Za-z]+$/.test(id))).toBe(true);
  expect(new Set(ids).size).toBe(ids.length);
  expect(Object.keys(document.paths).filter((path) => path.includes("*"))).toEqual([]);
  expect(Object.keys(document.paths)).toContain("/v1/threads/{thread}/artifacts/{path}");
  expect(Object.keys(document.components.schemas).filter((name) => name.endsWith("Input"))).toEqual([]);
});

test("the user of a key is a parameter of every route that belongs to a user", () => {
  const acting = operations().filter(({ operation }) =>
    operation.parameters?.some(({ name }) => name === "x-sandlot-user"),
  );
  const own = operations().filter(({ path }) => path.includes("{thread}") || path === "/v1/threads");
  expect(acting.map(({ path, method }) => `${method} ${path}`)).toEqual(
    expect.arrayContaining(own.map(({ path, method }) => `${method} ${path}`)),
  );
});

test("bodies that are not JSON are not declared as JSON", async () => {
  expect(typesOf("/metrics", "get", "200")).toEqual(["text/plain"]);
  expect(typesOf("/v1/events", "get", "200")).toEqual(["text/event-stream"]);
  expect(typesOf("/v1/threads/{thread}/files/content", "get", "200")).toEqual(["application/octet-stream"]);
  expect(typesOf("/v1/threads/{thread}/exec", "post", "200")).toEqual(["application/json", "text/event-stream"]);
  expect(typesOf("/v1/threads/{thread}/exec", "post", "202")).toEqual(["application/json"]);
  const write = document.paths["/v1/threads/{thread}/files/content"]?.put;
  expect(Object.keys(write?.requestBody?.content ?? {})).toEqual(["application/octet-stream"]);
  const response = await stage.operator.call("GET", "/openapi.json");
  expect(response.headers.get("content-type")).toBe("application/json; charset=utf-8");
});

test("the schema of errors holds for every error, also DeerFlow's", async () => {
  expect(document.components.schemas.Error?.additionalProperties).not.toBe(false);
  expect(Object.keys(document.paths["/v1/threads/{thread}/exec"]?.post?.responses ?? {})).toContain("431");
  const refused = await stage.operator.ask<Record<string, unknown>>(400, "GET", "/api/threads/t/artifacts/none.txt");
  expect(Object.keys(refused).sort()).toEqual(["detail", "error"]);
});

test("every property below /v1 is spelled in camelCase; DeerFlow's spelling stays below /api", () => {
  const spelled = (prefix: string) => {
    const names = new Set<string>();
    const seen = new Set<string>();
    const walk = (node: unknown): void => {
      if (typeof node !== "object" || node === null) return;
      for (const [key, value] of Object.entries(node)) {
        if (key === "properties") for (const name of Object.keys(value as object)) names.add(name);
        const component = key === "$ref" && /^#\/components\/schemas\/(.+)$/.exec(String(value))?.[1];
        if (component && !seen.has(component)) {
          seen.add(component);
          walk(document.components.schemas[component]);
        } else walk(value);
      }
    };
    for (const { path, operation } of operations()) if (path.startsWith(prefix)) walk(operation);
    return names;
  };
  const ours = spelled("/v1/");
  expect([...ours].filter((name) => name.includes("_"))).toEqual([]);
  for (const name of ["artifactUrl", "skippedFiles", "maxFileBytes", "exitCode"]) expect(ours).toContain(name);
  for (const name of ["artifact_url", "skipped_files", "max_file_size"]) expect(spelled("/api/")).toContain(name);
});

test("a response may have more in a later version, and a request may not", () => {
  const { schemas } = document.components;
  const closed = (node: unknown, seen = new Set<string>()): boolean => {
    if (typeof node !== "object" || node === null) return false;
    if ("additionalProperties" in node && node.additionalProperties === false) return true;
    return Object.entries(node).some(([key, value]) => {
      const name = key === "$ref" ? String(value).split("/").at(-1) : undefined;
      if (name === undefined || seen.has(name)) return closed(value, seen);
      seen.add(name);
      return closed(schemas[name], seen);
    });
  };
  const named = operations().map(({ path, method, operation }) => ({ name: `${method} ${path}`, operation }));
  expect(named.filter(({ operation }) => closed(operation.responses)).map(({ name }) => name)).toEqual([]);
  const bodies = named.flatMap(({ name, operation: { requestBody } }) => {
    const json = requestBody?.content["application/json"];
    return json !== undefined && name.includes(" /v1/") ? [{ name, json }] : [];
  });
  expect(bodies.length).toBeGreaterThan(15);
  expect(bodies.filter(({ json }) => !closed(json)).map(({ name }) => name)).toEqual([]);
  expect(JSON.stringify(schemas.ExecResult)).toContain("x-extensible-enum");
});
