/**
 * Installers as people type them, without root and without a network: each installs a package that the test makes, and
 * the command it brings runs in a later sandbox.
 */

import { readFileSync } from "node:fs";
import { basename } from "node:path";
import type { Sandbox } from "@sandlot/contract";
import { expect, type TestContext } from "vitest";
import type { BackendStage } from "../../src/testing/backend-suite/stage.ts";

export interface Installer {
  /** As typed. */
  readonly name: string;
  /** The programs it needs. */
  readonly needs: readonly string[];
  readonly install: string;
  /** Prints `hello from <name>`. */
  readonly run: string;
  readonly says: string;
}

/** A wheel with one command, written by Python itself: building one would need more packages. */
const WHEEL = `
wheel() {
  python3 - "$1" <<'END'
import sys, zipfile
name = sys.argv[1]
info = f"{name}-1.0.dist-info"
files = {
    f"{name}.py": f"def main():\\n    print('hello from {name}')\\n",
    f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    f"{info}/entry_points.txt": f"[console_scripts]\\n{name} = {name}:main\\n",
}
record = f"{info}/RECORD"
files[record] = "".join(f"{path},,\\n" for path in [*files, record])
with zipfile.ZipFile(f"{name}-1.0-py3-none-any.whl", "w") as archive:
    for path, text in files.items():
        archive.writestr(path, text)
END
}
`;

/** Where Go's own archive puts it, and where the daemon's machine may have it. */
const WITH_GO = "PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin";

export const INSTALLERS: readonly Installer[] = [
  {
    name: "pip install",
    needs: ["python3", "pip"],
    install: `${WHEEL} wheel plain && pip install --no-index ./plain-1.0-py3-none-any.whl`,
    ...{ run: "plain; python3 -c 'import plain; plain.main()'", says: "hello from plain\nhello from plain\n" },
  },
  {
    name: "pip install --user",
    needs: ["python3", "pip"],
    install: `${WHEEL} wheel forme && pip install --user --no-index ./forme-1.0-py3-none-any.whl`,
    ...{ run: "forme", says: "hello from forme\n" },
  },
  {
    name: "python3 -m venv",
    needs: ["python3"],
    install: `${WHEEL} wheel apart && python3 -m venv ~/env && . ~/env/bin/activate && pip install --no-index ./apart-1.0-py3-none-any.whl`,
    ...{ run: ". ~/env/bin/activate && apart", says: "hello from apart\n" },
  },
  {
    name: "npm i -g",
    needs: ["npm"],
    install: `mkdir -p pkg && cd pkg && printf '#!/usr/bin/env node\\nconsole.log("hello from npm")' > cli.js && echo '{"name":"from-npm","version":"1.0.0","bin":{"from-npm":"cli.js"}}' > package.json && npm pack --silent && npm i -g ./from-npm-1.0.0.tgz`,
    ...{ run: "from-npm; npm ls -g | grep -c from-npm", says: "hello from npm\n1\n" },
  },
  {
    name: "pipx install",
    needs: ["pipx"],
    install: `${WHEEL} wheel boxed && pipx install --pip-args=--no-index ./boxed-1.0-py3-none-any.whl`,
    ...{ run: "boxed", says: "hello from boxed\n" },
  },
  {
    name: "uv tool install",
    needs: ["uv", "python3"],
    install: `${WHEEL} wheel fast && uv tool install --offline --no-index --find-links . fast`,
    ...{ run: "fast", says: "hello from fast\n" },
  },
  {
    name: "cargo install",
    needs: ["cargo"],
    install: `mkdir -p crab/src && cd crab && printf '[package]\\nname = "crab"\\nversion = "1.0.0"\\nedition = "2021"\\n' > Cargo.toml && echo 'fn main() { println!("hello from crab"); }' > src/main.rs && cargo install --offline --path .`,
    ...{ run: "crab", says: "hello from crab\n" },
  },
  {
    name: "go install",
    needs: ["go"],
    install: `${WITH_GO}; mkdir -p gopher && cd gopher && printf 'module example.org/gopher\\n\\ngo 1.18\\n' > go.mod && printf 'package main\\n\\nfunc main() { println("hello from gopher") }\\n' > main.go && go install . && go env GOFLAGS`,
    ...{ run: "gopher 2>&1", says: "hello from gopher\n" },
  },
];

/** Installs in one sandbox, kills it, and runs the command in the next one of the same thread. */
export async function installsAndRuns(
  stage: BackendStage,
  { name, needs, install, run, says }: Installer,
  context: TestContext,
  prepare: (sandbox: Sandbox) => Promise<void> = async () => {},
): Promise<void> {
  const key = stage.newKey();
  const first = await stage.make(key);
  const { sandbox } = await stage.attach(first.target);
  await prepare(sandbox);
  for (const program of needs) {
    const found = await sandbox.exec(`${WITH_GO}; command -v ${program}`);
    if (found.exitCode !== 0) return context.skip(`${program} is not installed where sandboxes see it`);
  }
  const { exitCode, stdout, stderr } = await sandbox.exec(`set -e; ${install}`, { timeoutMs: 300_000 });
  expect({ name, exitCode, stdout, stderr }).toMatchObject({ exitCode: 0 });
  expect((await sandbox.exec(run)).stdout).toBe(says);
  await stage.kill(first);
  await stage.destroy(first);
  const next = await stage.attach((await stage.make(key)).target);
  const ran = await next.sandbox.exec(run);
  expect({ name, ...ran }).toMatchObject({ exitCode: 0, stdout: says });
}

/** Puts a wheel of this machine into a sandbox and installs it. */
export async function pipInstall(sandbox: Sandbox, wheel: string): Promise<void> {
  const name = basename(wheel);
  await sandbox.files.write(`/tmp/${name}`, readFileSync(wheel));
  const { exitCode, stderr } = await sandbox.exec(`pip install -q --no-index /tmp/${name}`, { timeoutMs: 300_000 });
  expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
}
