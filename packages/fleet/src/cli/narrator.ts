/** Narrates a demonstration step by step: as text while it runs, or as one JSON document at its end. */

import { printJson, type Terminal } from "./terminal.ts";

interface Step {
  readonly title: string;
  readonly lines: (string | { readonly command: string; readonly output: string; readonly exitCode: number | null })[];
}

export class Narrator {
  readonly #terminal: Terminal;
  readonly #json: boolean;
  readonly #steps: Step[] = [];

  constructor(terminal: Terminal, json: boolean) {
    this.#terminal = terminal;
    this.#json = json;
  }

  opening(...lines: readonly string[]): void {
    this.#print(`${lines.join("\n")}\n`);
  }

  step(title: string): void {
    this.#steps.push({ title, lines: [] });
    this.#print(`\n${this.#steps.length}. ${title}\n`);
  }

  say(sentence: string): void {
    this.#steps.at(-1)?.lines.push(sentence);
    this.#print(`   ${sentence}\n`);
  }

  command(command: string, output: string, exitCode: number | null): void {
    this.#steps.at(-1)?.lines.push({ command, output, exitCode });
    const shown = output
      .trimEnd()
      .split("\n")
      .map((line) => `       ${line}\n`);
    this.#print(`     $ ${command}\n${shown.join("")}       (exit code ${exitCode ?? "none"})\n`);
  }

  closing(...lines: readonly string[]): void {
    if (this.#json) printJson(this.#terminal, { steps: this.#steps });
    this.#print(`\n${lines.join("\n")}\n`);
  }

  #print(text: string): void {
    if (!this.#json) this.#terminal.out(text);
  }
}
