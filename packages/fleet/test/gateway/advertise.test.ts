/** `gateway.advertise`: which addresses are accepted, and which Host they allow. */

import { request } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
import { loadSettings } from "../../src/cli/load-settings.ts";
import { resolveGatewaySettings } from "../../src/config/gateway-settings.ts";
import { openStage, type Stage } from "./support/stage.ts";

const problemOf = (advertise: string, more: object = {}): string => {
  try {
    resolveGatewaySettings({ advertise, ...more });
    return "";
  } catch (error) {
    return (error as Error).message;
  }
};

describe("the advertised address", () => {
  let stage: Stage | null = null;
  afterEach(async () => {
    await stage?.done();
    stage = null;
  });

  it("is none by default", () => {
    expect(resolveGatewaySettings().advertise).toBe(undefined);
  });

  it("may be https, or http on loopback, with a path", () => {
    for (const url of [
      "https://a.example",
      "https://a.example:8750/sandlot",
      "http://127.0.0.1:8750",
      "http://[::1]:1",
    ])
      expect(problemOf(url), url).toBe("");
  });

  it("sends keys in the clear only where a proxy was named", () => {
    expect(problemOf("http://10.0.0.1:8750")).toMatch(/gateway\.advertise: .* in the clear/);
    expect(problemOf("http://10.0.0.1:8750", { behindProxy: true })).toBe("");
  });

  it("is a base URL", () => {
    for (const url of [
      "ftp://a.example",
      "a.example",
      "https://u:p@a.example",
      "https://a.example/?x=1",
      "https://a.example/#x",
    ])
      expect(problemOf(url), url).toMatch(/gateway\.advertise/);
  });

  it("comes from the environment, too", async () => {
    const { gateway } = await loadSettings(undefined, { SANDLOT_ADVERTISE: "https://a.example" });
    expect(gateway.advertise).toBe("https://a.example");
  });

  it("is a Host that requests may use", async () => {
    stage = await openStage({ settings: { advertise: "https://a.example:8443" } });
    const { port } = new URL(stage.gateway.url);
    const statusOf = (host: string) =>
      new Promise<number>((resolve, reject) => {
        const sent = request({ host: "127.0.0.1", port, path: "/healthz", headers: { host } }, (response) => {
          response.resume();
          resolve(response.statusCode ?? 0);
        });
        sent.on("error", reject).end();
      });
    expect(await statusOf("a.example:8443")).toBe(200);
    expect(await statusOf("a.example:8444")).toBe(403);
    expect(await statusOf("b.example:8443")).toBe(403);
  });
});
