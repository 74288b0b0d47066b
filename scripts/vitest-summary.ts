/**
 * A vitest reporter that writes what `npm test` needs: counts, and every skipped test with the reason it gave
 * (`context.skip("reason")`), and every test that passed only when it was tried again.
 * The JSON reporter of vitest leaves both out.
 *
 * While tests run, their names stand in a file, one in a line: it changes with every test that begins or ends.
 */
import { writeFileSync } from "node:fs";
import type { Reporter, TestCase, TestModule } from "vitest/node";

export interface TestSummary {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: readonly { readonly name: string; readonly reason: string }[];
  /** Passed at the second try: a test that is not dependable, or a fault that shows itself now and then. */
  readonly retried: readonly string[];
}

export default class VitestSummary implements Reporter {
  readonly #running = new Set<string>();

  onTestModuleQueued(module: TestModule): void {
    this.#move("add", module.relativeModuleId);
  }

  onTestModuleEnd(module: TestModule): void {
    this.#move("delete", module.relativeModuleId);
  }

  onTestCaseReady(test: TestCase): void {
    this.#move("add", nameOf(test));
  }

  onTestCaseResult(test: TestCase): void {
    this.#move("delete", nameOf(test));
  }

  #move(change: "add" | "delete", name: string): void {
    this.#running[change](name);
    const file = process.env.SANDLOT_TEST_PROGRESS;
    if (file !== undefined) writeFileSync(file, [...this.#running].join("\n"));
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    const file = process.env.SANDLOT_TEST_SUMMARY;
    if (file !== undefined) writeFileSync(file, JSON.stringify(summarize(modules, unhandledErrors.length)));
  }
}

function nameOf(test: TestCase): string {
  return `${test.module.relativeModuleId} > ${test.fullName}`;
}

function summarize(modules: readonly TestModule[], unhandledErrorCount: number): TestSummary {
  let passed = 0;
  let failed = unhandledErrorCount;
  const skipped: { name: string; reason: string }[] = [];
  const retried: string[] = [];
  for (const module of modules) {
    // A file that could not be loaded and a suite whose hook failed have no failed test to show for it.
    failed += module.errors().length;
    for (const suite of module.children.allSuites()) failed += suite.errors().length;
    for (const test of module.children.allTests()) {
      const result = test.result();
      const name = nameOf(test);
      if (result.state === "passed" && test.diagnostic()?.flaky === true) retried.push(name);
      if (result.state === "passed") passed++;
      else if (result.state === "failed") failed++;
      else {
        const note = result.state === "skipped" ? result.note : undefined;
        skipped.push({ name, reason: note ?? "no reason given" });
      }
    }
  }
  return { passed, failed, skipped, retried };
}
