/** Completion is tried in a real shell. */

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { runCli } from "./run-cli.ts";

const installed = (name: string) =>
  (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, name)));

let script: string;
beforeAll(async () => {
  script = (await runCli(["completion", "bash"])).stdout;
});

/** Bash's offers for these words; the last one is being typed. */
function offered(...words: string[]): readonly string[] {
  const program = `${script}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sandlot; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr, status } = spawnSync("bash", ["-c", program, "bash", ...words], {
    encoding: "utf8",
    cwd: "/usr",
  });
  expect([status, stderr]).toEqual([0, ""]);
  return stdout.split("\n").filter((word) => word !== "");
}

describe("completion in bash", () => {
  it("offers commands, their commands and their options", () => {
    expect(offered("sandlot", "ex")).toEqual(["exec", "explain"]);
    expect(offered("sandlot", "keys", "")).toEqual(expect.arrayContaining(["create", "list", "revoke"]));
    expect(offered("sandlot", "keys", "create", "--s")).toEqual(["--scope"]);
    expect(offered("sandlot", "exec", "--thread", "t1", "--t")).toEqual(["--thread", "--timeout"]);
    expect(offered("sandlot", "config", "import", "deerflow", "--o")).toEqual(["--output"]);
  });

  it("offers the values of an option, and of an argument, where they are known", () => {
    expect(offered("sandlot", "keys", "create", "--scope", "")).toEqual(["user", "platform", "operator"]);
    expect(offered("sandlot", "serve", "--log-level", "d")).toEqual(["debug"]);
    expect(offered("sandlot", "completion", "")).toEqual(["bash", "zsh", "fish"]);
  });

  it("offers threads where one belongs, and no files of this machine", () => {
    const asked = script;
    script = `sandlot() { [[ "$*" == "ps --threads --quiet" ]] && printf 'alpha\\nbeta\\n'; }\n${asked}`;
    try {
      expect(offered("sandlot", "exec", "-t", "")).toEqual(["alpha", "beta"]);
      expect(offered("sandlot", "shell", "--thread", "b")).toEqual(["beta"]);
      expect(offered("sandlot", "ls", "")).toEqual(["alpha", "beta"]);
      expect(offered("sandlot", "ls", "shar")).toEqual([]);
      expect(offered("sandlot", "rm", "--thread", "shar")).toEqual([]);
    } finally {
      script = asked;
    }
  });

  it("offers files where no word fits", () => {
    expect(offered("sandlot", "cp", "")).toContain("share");
    expect(offered("sandlot", "cp", "shar")).toEqual(["share"]);
    expect(offered("sandlot", "exec", "--config", "shar")).toEqual(["share"]);
    expect(offered("sandlot", "serve", "--nonsense")).toEqual([]);
  });
});

describe("completion in other shells", () => {
  it("names every command that --help names", async () => {
    const { stdout } = await runCli(["--help"]);
    const help = stdout.slice(stdout.indexOf("Commands:"), stdout.indexOf("Examples:"));
    const commands = [...help.matchAll(/^ {2}([a-z]+)(?: |$)/gm)].map(([, name]) => name);
    for (const shell of ["zsh", "fish"]) {
      const { code, stdout: written } = await runCli(["completion", shell]);
      expect(code).toBe(0);
      expect(commands.length).toBeGreaterThan(10);
      for (const name of commands) if (name !== "help") expect(written).toContain(name);
    }
    expect((await runCli(["completion", "tcsh"])).code).toBe(2);
  }, 60_000);

  // A shell in its own terminal, which gets a Tab: sourced, and as a file of $fpath, which is run for that very Tab.
  it.for(["source $1/_sandlot", "fpath=($1 $fpath)"])(
    "completes in zsh (%s) with the first Tab",
    { timeout: 90_000 },
    async (way, context) => {
      if (!installed("zsh")) return context.skip("zsh is not installed");
      const folder = mkdtempSync(join(tmpdir(), "slz-"));
      writeFileSync(join(folder, "_sandlot"), (await runCli(["completion", "zsh"])).stdout);
      const [before, after] = way.startsWith("fpath") ? [way, ":"] : [":", way];
      const program = `zmodload zsh/zpty; zpty shell zsh -f -i; cd /usr
ask() { zpty -w shell "$1"; zpty -r -m shell seen "*$2*" }
ask "set -- $1; PS1=; ${before}; autoload -Uz compinit; compinit -u -D; ${after}; print rea''dy" ready
zpty -w -n shell "sandlot $2"$'\\t'
zpty -r -m shell seen "*sandlot $3*" && print -r -- complete
zpty -d shell`;
      for (const [typed, completed] of [
        ["expl", "explain"],
        ["serve --log-level d", "serve --log-level debug"],
      ] as const) {
        const { stdout } = spawnSync("zsh", ["-f", "-c", program, "zsh", folder, typed, completed], {
          encoding: "utf8",
          cwd: "/usr",
          timeout: 90_000,
        });
        expect(stdout).toContain("complete");
      }
      rmSync(folder, { recursive: true });
    },
  );

  it("is understood by fish, which offers what bash offers", async (context) => {
    if (!installed("fish")) return context.skip("fish is not installed");
    const { stdout } = await runCli(["completion", "fish"]);
    // Without a known terminal fish would warn; without `--no-config` it would write a configuration.
    const options = { encoding: "utf8", env: { ...process.env, TERM: "xterm" } } as const;
    const checked = spawnSync("fish", ["--no-config", "-n", "-c", stdout], options);
    expect(checked).toMatchObject({ status: 0, stderr: "" });
    const asked = (line: string) =>
      spawnSync("fish", ["--no-config", "-c", `${stdout}\ncomplete -C '${line}'`], options)
        .stdout.split("\n")
        .map((one) => one.split("\t")[0] ?? "")
        .filter((word) => word !== "");
    expect(asked("sandlot ex").sort()).toEqual(["exec", "explain"]);
    expect(asked("sandlot keys ").sort()).toEqual(expect.arrayContaining(["create", "list", "revoke"]));
    expect(asked("sandlot keys create --s")).toEqual(["--scope"]);
    expect(asked("sandlot keys create --scope ").sort()).toEqual(["operator", "platform", "user"]);
    expect(asked("sandlot completion ").sort()).toEqual(["bash", "fish", "zsh"]);
  });
});
