import { isSandlotError } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import { parseAuthority } from "../../../src/backend/network/host-name.ts";
import { type BoundSecret, compilePolicy, type NetworkPolicy } from "../../../src/backend/network/policy.ts";
import { explainRefusal } from "../../../src/host/egress/proxy/replies.ts";
import { decideByAddress, decideByName, isRefusal } from "../../../src/host/egress/rules/decide.ts";

const NONE: ReadonlySet<string> = new Set();

function policy(
  allow: NetworkPolicy["allow"],
  secrets: readonly BoundSecret[] = [],
  mode: NetworkPolicy["mode"] = "allowlist",
) {
  return compilePolicy({ mode, allow, secrets });
}

function byName(compiled: ReturnType<typeof policy>, authority: string): boolean {
  return !isRefusal(decideByName(compiled, parseAuthority(authority)!));
}

describe("rules by name", () => {
  const compiled = policy([
    { host: "Example.org", ports: [443, 80] },
    { host: "*.pypi.ORG.", ports: [443] },
    { host: "bücher.example", ports: [443] },
    { host: "93.184.216.34", ports: [80] },
    { host: "2606:4700::1", ports: [80] },
  ]);

  it.each([
    "example.org:443",
    "EXAMPLE.ORG.:80",
    "files.pypi.org:443",
    "a.b.pypi.org:443",
    "xn--bcher-kva.example:443",
    "93.184.216.34:80",
    "0x5db8d822:80",
    "[2606:4700:0::1]:80",
  ])("allow %s", (authority) => {
    expect(byName(compiled, authority)).toBe(true);
  });

  it.each([
    "example.org:8080",
    "sub.example.org:443",
    "pypi.org:443",
    "evilpypi.org:443",
    "pypi.org.evil.example:443",
    "93.184.216.35:80",
    "1.2.3.4:443",
  ])("refuse %s", (authority) => {
    expect(byName(compiled, authority)).toBe(false);
  });

  it("allow everything in open mode, and nothing in none", () => {
    expect(byName(policy([], [], "open"), "any.example:1")).toBe(true);
    expect(byName(policy([], [], "none"), "any.example:1")).toBe(false);
  });
});

describe("rules by address", () => {
  const target = parseAuthority("db.example:5432")!;
  const decide = (compiled: ReturnType<typeof policy>, found: readonly string[], own = NONE) => {
    const rules = decideByName(compiled, target);
    if (isRefusal(rules)) throw new Error(rules.because);
    return decideByAddress(target, rules, found, own);
  };
  const plainRule = { host: "db.example", ports: [5432] };

  it("keep the public addresses of a mixed answer", () => {
    expect(decide(policy([plainRule]), ["10.0.0.1", "1.1.1.1", "::1"])).toEqual(["1.1.1.1"]);
  });

  it("refuse when nothing public is left, and say why", () => {
    expect(decide(policy([plainRule]), ["10.0.0.1"])).toMatchObject({
      rule: "address-not-public",
      because: "10.0.0.1 lies in 10.0.0.0/8 (private)",
      addresses: ["10.0.0.1"],
    });
  });

  it("reach exactly what a rule names, whatever it is", () => {
    const pinned = policy([{ ...plainRule, addresses: ["10.0.0.0/24"] }]);
    expect(decide(pinned, ["10.0.0.7", "10.0.1.7", "1.1.1.1"])).toEqual(["10.0.0.7"]);
    expect(decide(pinned, ["1.1.1.1"])).toMatchObject({ rule: "address-not-named" });
  });

  it("add up", () => {
    const both = policy([plainRule, { ...plainRule, addresses: ["10.0.0.7"] }]);
    expect(decide(both, ["10.0.0.7", "10.0.0.8", "1.1.1.1"])).toEqual(["10.0.0.7", "1.1.1.1"]);
  });

  it("refuse the machine's own addresses, public as they are", () => {
    expect(decide(policy([], [], "open"), ["1.1.1.1"], new Set(["1.1.1.1"]))).toMatchObject({
      rule: "address-of-this-host",
    });
  });

  it("explain a refusal with what would allow it", () => {
    const compiled = policy([plainRule]);
    const refusal = decide(compiled, ["10.0.0.1"]);
    if (!isRefusal(refusal)) throw new Error("was allowed");
    const text = explainRefusal(refusal, compiled);
    expect(text).toContain("db.example:5432");
    expect(text).toContain("10.0.0.0/8 (private)");
    expect(text).toContain('{"host":"db.example","ports":[5432],"addresses":["10.0.0.1"]}');
  });
});

describe("problems of a policy", () => {
  const secret: BoundSecret = {
    ...{ name: "key", host: "api.example.com", header: "authorization", value: "0123456789abcdef", via: "https" },
  };
  const rule = { host: "api.example.com", ports: [443] };

  it.each([
    ["network.allow[0].host", { mode: "allowlist", allow: [{ host: "*", ports: [443] }], secrets: [] }],
    ["network.allow[0].host", { mode: "allowlist", allow: [{ host: "a.*.org", ports: [443] }], secrets: [] }],
    ["network.allow[0].host", { mode: "allowlist", allow: [{ host: "http://a.org", ports: [443] }], secrets: [] }],
    ["network.allow[0].host", { mode: "allowlist", allow: [{ host: "*.1.2.3.4", ports: [443] }], secrets: [] }],
    ["network.allow[0].ports", { mode: "allowlist", allow: [{ host: "a.org", ports: [] }], secrets: [] }],
    [
      "network.allow[0].addresses[0]",
      { mode: "allowlist", allow: [{ ...rule, addresses: ["10.0.0.0/40"] }], secrets: [] },
    ],
    [
      "network.allow[0].addresses[0]",
      { mode: "allowlist", allow: [{ ...rule, addresses: ["0.0.0.0/0"] }], secrets: [] },
    ],
    ["network.allow[0].addresses[0]", { mode: "allowlist", allow: [{ ...rule, addresses: ["ff02::1"] }], secrets: [] }],
    ...["127.0.0.1/32", "127.1.2.3", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "169.254.169.254", "0.0.0.0/1"].map(
      (address) =>
        [
          "network.allow[0].addresses[0]",
          { mode: "allowlist", allow: [{ ...rule, addresses: [address] }], secrets: [] },
        ] as const,
    ),
    ...["fe80::1", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"].map(
      (address) =>
        [
          "network.allow[0].addresses[0]",
          { mode: "allowlist", allow: [{ ...rule, addresses: [address] }], secrets: [] },
        ] as const,
    ),
    ["network.secrets[0]", { mode: "allowlist", allow: [], secrets: [secret] }],
    ["network.secrets[0]", { mode: "none", allow: [rule], secrets: [secret] }],
    ["network.secrets[0].host", { mode: "allowlist", allow: [rule], secrets: [{ ...secret, host: "*.example.com" }] }],
    ["network.secrets[0].host", { mode: "allowlist", allow: [rule], secrets: [{ ...secret, host: "1.1.1.1" }] }],
    ["network.secrets[0].header", { mode: "allowlist", allow: [rule], secrets: [{ ...secret, header: "Host" }] }],
    ["network.secrets[0].header", { mode: "allowlist", allow: [rule], secrets: [{ ...secret, header: "a b" }] }],
    ["network.secrets[0].value", { mode: "allowlist", allow: [rule], secrets: [{ ...secret, value: "short" }] }],
    [
      "network.secrets[0].value",
      { mode: "allowlist", allow: [rule], secrets: [{ ...secret, value: "0123456789\r\nx: y" }] },
    ],
  ] as const)("is told at %s", (path, wrong) => {
    try {
      compilePolicy(wrong);
    } catch (error) {
      expect(isSandlotError(error, "config_invalid") && error.details.path).toBe(path);
      expect(String(error)).not.toContain("0123456789");
      return;
    }
    throw new Error("was accepted");
  });
});
