/** Where each package tool reads, from a machine's files and variables or from the tool itself: without any network. */

import { isSandlotError } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import type { RegistryTool } from "../../../src/backend/network/registry-rules.ts";
import type { Machine } from "../../../src/host/egress/registries/machine.ts";
import { resolveRegistries } from "../../../src/host/egress/registries/resolve.ts";
import { sourcesOf } from "../../../src/host/egress/registries/tools.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

interface Given {
  readonly environment?: Readonly<Record<string, string>>;
  readonly files?: Readonly<Record<string, string>>;
  /** What a program prints; a program that is left out cannot be run. */
  readonly says?: Readonly<Record<string, { readonly stdout?: string; readonly stderr?: string }>>;
}

const HOME = "/home/tester";

function machine({ environment = {}, files = {}, says = {} }: Given): Machine & { readonly asked: string[] } {
  const asked: string[] = [];
  return {
    asked,
    environment,
    home: HOME,
    read: (path) => files[path] ?? null,
    ask: async (program) => {
      asked.push(program);
      const said = says[program];
      return said === undefined ? null : { stdout: "", stderr: "", ...said };
    },
  };
}

async function problemOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return "";
  } catch (error) {
    if (!isSandlotError(error, "config_invalid")) throw error;
    return `${error.details.path}: ${error.details.problem}`;
  }
}

describe("a machine without configuration", () => {
  const says = {
    pip3: { stdout: "  -i, --index-url <url>  Base URL of the Index\n (default\n https://pip.example/simple)." },
    npm: { stdout: "https://npm.example/\n" },
    cargo: { stderr: "error: failed to get `https://cargo.example/index/config.json`" },
    go: { stdout: "https://go.example,direct\nsums.example\n" },
  };

  it.each<[RegistryTool, string]>([
    ["pip", "https://pip.example/simple"],
    ["npm", "https://npm.example/"],
    ["cargo", "https://cargo.example/index/"],
    ["go", "https://go.example/"],
  ])("%s is asked for its own default", async (tool, url) => {
    const { sources } = await sourcesOf(tool, machine({ says }));
    expect(sources.map((one) => [one.url, one.origin])).toEqual([
      [url, expect.stringMatching(`${tool}'s own default`)],
    ]);
  });

  it.each<[RegistryTool, string]>([
    ["pip", "PIP_INDEX_URL"],
    ["npm", "npm_config_registry"],
    ["cargo", "source.crates-io.replace-with"],
    ["go", "GOPROXY"],
  ])("and a %s that cannot say it is an error that names the setting", async (tool, setting) => {
    const problem = await problemOf(sourcesOf(tool, machine({})));
    expect(problem).toContain(`network.registries: nothing on this machine says where ${tool} reads packages`);
    expect(problem).toContain(setting);
  });
});

describe("a configured machine", () => {
  it.each<[RegistryTool, Given, readonly string[]]>([
    [
      "pip",
      { files: { "/etc/pip.conf": "[global]\nindex-url = https://a.example/simple" } },
      ["https://a.example/simple"],
    ],
    [
      "pip",
      {
        files: { "/etc/pip.conf": "[global]\nindex-url = https://a.example/simple" },
        environment: { PIP_INDEX_URL: "https://b.example/simple", PIP_EXTRA_INDEX_URL: "https://c.example/simple" },
      },
      ["https://b.example/simple", "https://c.example/simple"],
    ],
    [
      "npm",
      { files: { [`${HOME}/.npmrc`]: "registry=https://a.example/\n@corp:registry=https://b.example/npm/" } },
      ["https://a.example/", "https://b.example/npm/"],
    ],
    [
      "go",
      { environment: { GOPROXY: "https://a.example|https://b.example,direct", GOSUMDB: "off" } },
      ["https://a.example/", "https://b.example/"],
    ],
    [
      "cargo",
      {
        files: {
          [`${HOME}/.cargo/config.toml`]:
            '[source.crates-io]\nreplace-with = "m"\n[source.m]\nregistry = "sparse+https://a.example/index/"',
        },
      },
      ["https://a.example/index/"],
    ],
  ])("%s reads %j", async (tool, given, urls) => {
    const asked = machine(given);
    expect((await sourcesOf(tool, asked)).sources.map(({ url }) => url)).toEqual(urls);
    expect(asked.asked).toEqual([]);
  });

  it("of Go's proxies `direct` never counts, and alone it is none", async () => {
    const only = { environment: { GOPROXY: "direct", GOSUMDB: "off" } };
    expect(await problemOf(sourcesOf("go", machine(only)))).toContain("not only direct");
  });

  it("a cargo index in git is refused with a sentence", async () => {
    const files = {
      [`${HOME}/.cargo/config.toml`]:
        '[source.crates-io]\nreplace-with = "m"\n[source.m]\nregistry = "https://a.example/index"',
    };
    expect(await problemOf(sourcesOf("cargo", machine({ files })))).toContain("write sparse+https://");
  });
});

describe("credentials of the machine", () => {
  const files = { "/etc/pip.conf": "[global]\nindex-url = https://reader:secret-password@a.invalid/simple" };
  const options = { world: systemWorld(), machine: machine({ files }) };

  it("are used for no host that the configuration does not name, and no address has them", async () => {
    const resolved = await resolveRegistries({ registries: ["pip"] }, options);
    expect(resolved?.access.rules).toEqual([{ tool: "pip", url: "https://a.invalid/simple", origin: "/etc/pip.conf" }]);
    expect(resolved?.lines[0]?.notes[0]).toContain("are not used, because network.mirrors does not name a.invalid");
    expect(JSON.stringify(resolved)).not.toContain("secret-password");
  });

  it("are bound to a host that it names, and stay outside of the sandbox", async () => {
    const resolved = await resolveRegistries({ registries: ["pip"], mirrors: [{ host: "a.invalid" }] }, options);
    const { rules, environment, files: inside } = resolved!.access;
    const authorization = `Basic ${Buffer.from("reader:secret-password").toString("base64")}`;
    expect(rules[0]).toMatchObject({ url: "https://a.invalid/simple", credential: { authorization } });
    expect(environment).toMatchObject({ PIP_INDEX_URL: "https://a.invalid/simple" });
    expect(JSON.stringify({ environment, inside, lines: resolved?.lines })).not.toContain("secret-password");
  });
});
