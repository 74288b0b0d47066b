/** The documents name only what is there: tests by their titles, commands, invariants, mutants and files. */

import { describe, expect, test } from "vitest";
import {
  documentPaths,
  isThere,
  linkTargets,
  plantedMutants,
  problemOf,
  proofsIn,
  read,
  simulationInvariants,
  tableRows,
} from "./documents.ts";

const SPECIFICATION = "docs/SPECIFICATION.md";
const NOT_YET = "not yet measured";

const promises = tableRows(read(SPECIFICATION)).filter(([id]) => id?.startsWith("S-"));

describe("the specification", () => {
  test("numbers its promises without a gap", () => {
    expect(promises.length).toBeGreaterThan(0);
    expect(promises.map(([id]) => id)).toEqual(promises.map((_, index) => `S-${index + 1}`));
  });

  test.each(promises)("%s is shown by what it names", (_, promise, shownBy = "") => {
    expect(promise).not.toBe("");
    for (const cell of shownBy.split("<br>").map((part) => part.trim())) {
      if (cell === NOT_YET) continue;
      const command = /^`(npm [^`]+)`$/.exec(cell)?.[1];
      const proofs = command === undefined ? proofsIn(cell) : [{ subject: command, title: null }];
      expect(proofs, `neither a test, nor a command, nor "${NOT_YET}": ${cell}`).toHaveLength(1);
      expect(proofs.map(problemOf)).toEqual([null]);
    }
  });
});

describe("the documents", () => {
  test.each(["docs/LIFECYCLE.md", "docs/CONCURRENCY.md"])("%s names tests that exist", (path) => {
    const proofs = proofsIn(read(path));
    expect(proofs.length).toBeGreaterThan(0);
    expect(proofs.map(problemOf).filter((problem) => problem !== null)).toEqual([]);
  });

  test.each(documentPaths())("%s links to files that exist", (path) => {
    expect(linkTargets(path).filter((target) => !isThere(target))).toEqual([]);
  });
});

describe("the sixteen rules", () => {
  const rules = tableRows(read("docs/CONCURRENCY.md")).filter(([number = ""]) => /^\d+$/.test(number));
  const invariants = simulationInvariants();
  const mutants = plantedMutants();
  const namesIn = (cell = "") => [...cell.matchAll(/`([a-z0-9-]+)`/g)].map(([, name = ""]) => name);

  test("are all there", () => {
    expect(rules.map(([number]) => Number(number))).toEqual(Array.from({ length: 16 }, (_, index) => index + 1));
  });

  test.each(rules)("rule %s names invariants and mutants that exist", (number, _rule, _files, checked, broken) => {
    expect(namesIn(checked).length).toBeGreaterThan(0);
    expect(namesIn(checked).filter((name) => !invariants.includes(name))).toEqual([]);
    expect(namesIn(broken).length).toBeGreaterThan(0);
    expect(namesIn(broken).filter((name) => mutants.get(name) !== Number(number))).toEqual([]);
  });
});
