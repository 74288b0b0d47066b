/** The home in containers: what an image's variables may not change, and what it is never used for. */

import { KEPT_HOME } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import { commandEnvironment } from "../../../src/backends/docker/container/command-environment.ts";
import { plant, ranPlanted, useEverything } from "../planted-programs.ts";
import { onStage, testEngine } from "./docker-harness.ts";
import { usingEngine } from "./using-engine.ts";

describe("the environment of commands", () => {
  it("keeps the image's own variables, and has the home for everything that is installed", () => {
    const image = {
      PATH: "/home/sandbox/.local/bin:/usr/local/cargo/bin:/go/bin:/usr/bin",
      ...{ HOME: "/root", CARGO_HOME: "/usr/local/cargo", GOPATH: "/go", NPM_CONFIG_PREFIX: "/opt/npm" },
      ...{ RUSTUP_HOME: "/usr/local/rustup", LANG: "de_DE.UTF-8" },
    };
    const { PATH = "", ...environment } = commandEnvironment(KEPT_HOME, image);
    const own = ["/.local/bin", "/.cargo/bin", "/go/bin"].map((path) => `${KEPT_HOME}${path}`);
    expect(PATH.split(":")).toEqual([...own, "/opt/env/bin", "/usr/local/cargo/bin", "/go/bin", "/usr/bin"]);
    expect(environment).toMatchObject({ HOME: KEPT_HOME, RUSTUP_HOME: "/usr/local/rustup", LANG: "de_DE.UTF-8" });
    expect(environment).toMatchObject({ NPM_CONFIG_PREFIX: `${KEPT_HOME}/.local`, GOFLAGS: "-modcacherw" });
    expect(environment).not.toHaveProperty("CARGO_HOME");
    expect(environment).not.toHaveProperty("GOPATH");
  });
});

usingEngine("the home of a container", await testEngine(), (engine) => {
  it("has no program that the daemon or the host runs for itself", () =>
    onStage(engine, async (stage) => {
      const key = stage.newKey();
      await plant(stage, key);
      const made = await stage.make(key);
      await useEverything(stage, made);
      expect(await ranPlanted(stage, made)).toBe("");
    }));
});
