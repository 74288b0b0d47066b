/** Nearby addresses bypass a proxy of the environment; all others use it. */

import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { mayUseProxy, proxyFor } from "../../../src/compat/aio/wire/proxy-rule.ts";
import { AioWire } from "../../../src/compat/aio/wire/wire.ts";
import { startStandIn } from "./start-stand-in.ts";

it.each([
  // Names of this machine, and of the machine that a container runs on.
  ["http://localhost:8080", false],
  ["http://LOCALHOST:8080", false],
  ["http://sandbox.localhost", false],
  ["http://localhost.:8080", false],
  ["http://host.docker.internal:8080", false],
  ["http://host.containers.internal:8080", false],
  // Names without a dot are found in a private network or not at all.
  ["http://sandbox", false],
  ["http://k3s:30001", false],
  // Loopback.
  ["http://127.0.0.1:8080", false],
  ["http://127.255.0.3", false],
  ["http://[::1]:8080", false],
  ["http://0.0.0.0:8080", false],
  // Private.
  ["http://10.1.2.3", false],
  ["http://172.16.0.1", false],
  ["http://172.31.255.255", false],
  ["http://192.168.1.1", false],
  ["http://[fd00::1]", false],
  ["http://[::ffff:10.0.0.1]", false],
  ["http://198.18.0.5", false],
  ["http://203.0.113.9", false],
  ["http://240.0.0.1", false],
  ["http://[2001:db8::1]", false],
  // Link-local.
  ["http://169.254.1.1", false],
  ["http://[fe80::1]", false],
  // Neighbours of those ranges, and everything else.
  ["http://172.15.255.255", true],
  ["http://172.32.0.1", true],
  ["http://11.0.0.1", true],
  ["http://128.0.0.1", true],
  ["http://192.169.0.1", true],
  ["http://8.8.8.8", true],
  ["http://198.17.255.255", true],
  ["http://198.20.0.1", true],
  ["http://100.64.0.1", true],
  ["http://[2606:4700::1111]", true],
  ["http://sandbox.example.org", true],
  ["http://localhost.example.org", true],
  ["http://docker.internal.example.org", true],
  ["http://notdocker.internal", true],
  // An unreadable address is not known to be near.
  ["", true],
  ["not an address", true],
])("%s may use a proxy: %s", (url, may) => {
  expect(mayUseProxy(url)).toBe(may);
});

it("takes the proxy from the variables, unless they except the host", () => {
  const far = "http://sandbox.example.org";
  expect(proxyFor(far, {})).toBeNull();
  expect(proxyFor(far, { HTTP_PROXY: "http://proxy:3128" })?.host).toBe("proxy:3128");
  expect(proxyFor(far, { http_proxy: "proxy:3128" })?.host).toBe("proxy:3128");
  expect(proxyFor(far, { ALL_PROXY: "http://all:1" })?.host).toBe("all:1");
  expect(proxyFor(far, { HTTP_PROXY: "http://proxy:3128", NO_PROXY: "example.org" })).toBeNull();
  expect(proxyFor(far, { HTTP_PROXY: "http://proxy:3128", no_proxy: "*" })).toBeNull();
  expect(proxyFor(far, { HTTP_PROXY: "http://proxy:3128", no_proxy: "other.org" })?.host).toBe("proxy:3128");
  expect(proxyFor("http://127.0.0.1", { HTTP_PROXY: "http://proxy:3128" })).toBeNull();
});

it("asks a sandbox on this machine directly, and one elsewhere through the proxy", async () => {
  const asked: IncomingMessage[] = [];
  const proxy = createServer((request, response) => {
    asked.push(request);
    response.end("{}");
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void proxy.close());
  await once(proxy, "listening");
  const { port } = proxy.address() as AddressInfo;
  const environment = { HTTP_PROXY: `http://me:secret@127.0.0.1:${port}` };
  const { url } = await startStandIn();
  const near = new AioWire({ address: { url }, apiKey: null, environment });
  const far = new AioWire({ address: { url: "http://sandbox.example.org:8080" }, apiKey: null, environment });
  onTestFinished(() => [near, far].forEach((wire) => void wire.close()));
  expect((await near.ask({ method: "GET", path: "/v1/sandbox" })).body.toString()).toContain("home_dir");
  expect(asked.length).toBe(0);
  expect((await far.ask({ method: "GET", path: "/v1/sandbox" })).status).toBe(200);
  expect(asked[0]?.url).toBe("http://sandbox.example.org:8080/v1/sandbox");
  expect(asked[0]?.headers.host).toBe("sandbox.example.org:8080");
  expect(asked[0]?.headers["proxy-authorization"]).toBe(`Basic ${Buffer.from("me:secret").toString("base64")}`);
});
