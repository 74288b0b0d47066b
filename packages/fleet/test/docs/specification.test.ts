/**
 * The documents name only existing things: promises with their proofs, rules with their checks, links with their
 * targets.
 */

import { describe, expect, test } from "vitest";
import {
  codeBlocks,
  documentPaths,
  isThere,
  linkTargets,
  plantedMutants,
  read,
  simulationInvariants,
} from "./documents.ts";
import { PROOFS } from "./proofs.ts";
import { PAGE, problems, promisedRules, promisesOf, renderPage } from "./specification-page.ts";

describe("the promises", () => {
  test.each(["S", "A", "C"] as const)("%s are numbered in documents", (letter) => {
    expect(promisesOf(letter).length).toBeGreaterThan(10);
  });

  test("are numbered without a gap, and each is shown by tests or commands that exist", () => {
    expect(problems()).toEqual([]);
  });

  test("without a proof, with one that does not exist, or with a number of no document are problems", () => {
    const { "S-1": _, ...without } = PROOFS;
    const wrong = { ...without, "S-2": ["no such title"], "S-3": ["npm run sim › no-such-invariant"], "S-999": ["x"] };
    expect(problems(wrong)).toEqual([
      'S-1: neither a test nor "not yet measured"',
      "S-999: no document has this number",
      'S-2: no test called "no such title"',
      "S-3: npm run sim: prints no no-such-invariant",
      'S-999: no test called "x"',
    ]);
  });

  test(`${PAGE} says what shows them`, () => {
    expect(read(PAGE) === renderPage(), "run `npm run docs:tests`").toBe(true);
  });
});

describe("the sixteen rules", () => {
  test("are all there", () => {
    expect(promisedRules().map(({ id }) => Number(id))).toEqual(Array.from({ length: 16 }, (_, index) => index + 1));
  });

  test.each(promisedRules())("rule $id is checked by an invariant and broken by a mutant", ({ id }) => {
    expect(simulationInvariants().filter(({ rule }) => rule === Number(id)).length).toBeGreaterThan(0);
    expect([...plantedMutants().values()].filter((rule) => rule === Number(id)).length).toBeGreaterThan(0);
  });
});

describe("the pages of backends", () => {
  const headings = (name: string) =>
    [...read(`docs/backends/${name}.md`).matchAll(/^## (.*)$/gm)].map(([, text]) => text);
  const common = headings("memory");

  test.each(["local", "docker", "remote"])("%s has the headings of the others, in their order", (name) => {
    expect(headings(name).filter((heading) => common.includes(heading))).toEqual(common);
  });

  test.each(["memory", "local", "docker", "remote"])("%s has a diagram of processes and sockets", (name) => {
    expect(codeBlocks(`docs/backends/${name}.md`, "mermaid")).toHaveLength(1);
  });
});

describe("the documents", () => {
  test.each(documentPaths())("%s links to files that exist", (path) => {
    expect(linkTargets(path).filter((target) => !isThere(target))).toEqual([]);
  });
});
