/** OpenSSL checks the certificates independently. */

import { execFileSync, spawnSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { createAuthority, issueCertificate } from "../../../src/host/egress/certificates/authority.ts";
import { integer, objectIdentifier, time, utf8String } from "../../../src/host/egress/certificates/der.ts";

const directory = mkdtempSync(join(tmpdir(), "sln-"));
afterAll(() => rmSync(directory, { recursive: true }));

const NOW = Date.now();
const authority = createAuthority(["api.example.com"], NOW);

function file(name: string, content: string): string {
  const path = join(directory, name);
  writeFileSync(path, content);
  return path;
}

function verify(leafPem: string, ...options: string[]): { status: number | null; output: string } {
  const args = ["verify", "-x509_strict", "-CAfile", file("ca.pem", authority.certificatePem), ...options];
  const { status, stdout, stderr } = spawnSync("openssl", [...args, file("leaf.pem", leafPem)], { encoding: "utf8" });
  return { status, output: stdout + stderr };
}

describe("certificates", () => {
  it("are accepted by OpenSSL, strictly, for their host", () => {
    const leaf = issueCertificate(authority, "api.example.com", NOW);
    expect(verify(leaf.certificatePem, "-purpose", "sslserver", "-verify_hostname", "api.example.com")).toEqual({
      status: 0,
      output: `${join(directory, "leaf.pem")}: OK\n`,
    });
    expect(verify(leaf.certificatePem, "-verify_hostname", "other.example.com").output).toContain("hostname mismatch");
  });

  it("are refused for a host that the authority may not speak for", () => {
    const leaf = issueCertificate(authority, "bank.example.net", NOW);
    expect(verify(leaf.certificatePem).output).toContain("permitted subtree violation");
  });

  it("are refused before and after their time", () => {
    const leaf = issueCertificate(authority, "api.example.com", NOW);
    const at = (ms: number) => verify(leaf.certificatePem, "-attime", String(Math.floor((NOW + ms) / 1_000))).output;
    expect(at(29 * 86_400_000)).toContain("OK");
    expect(at(31 * 86_400_000)).toContain("expired");
    expect(at(-2 * 86_400_000)).toContain("not yet valid");
  });

  it("are refused from an authority that is another's", () => {
    const other = createAuthority(["api.example.com"], NOW);
    const leaf = issueCertificate(other, "api.example.com", NOW);
    expect(verify(leaf.certificatePem).status).not.toBe(0);
  });

  it("hold what they should", () => {
    const ca = new X509Certificate(authority.certificatePem);
    expect(ca.ca).toBe(true);
    expect(ca.verify(ca.publicKey)).toBe(true);
    const leaf = new X509Certificate(issueCertificate(authority, "api.example.com", NOW).certificatePem);
    expect(leaf.ca).toBe(false);
    expect(leaf.subjectAltName).toBe("DNS:api.example.com");
    expect(leaf.checkIssued(ca) && leaf.verify(ca.publicKey)).toBe(true);
    const text = execFileSync("openssl", ["x509", "-in", file("ca.pem", authority.certificatePem), "-noout", "-text"], {
      encoding: "utf8",
    });
    expect(text).toContain("X509v3 Name Constraints: critical");
    expect(text).toContain("CA:TRUE, pathlen:0");
    expect(text).toContain("Certificate Sign, CRL Sign");
  });
});

describe("DER", () => {
  it.each([
    [integer(Buffer.from([0])), "020100"],
    [integer(Buffer.from([0, 0, 1])), "020101"],
    [integer(Buffer.from([0x80])), "02020080"],
    [objectIdentifier("1.2.840.10045.4.3.2"), "06082a8648ce3d040302"],
    [utf8String("x".repeat(127)), `0c7f${"78".repeat(127)}`],
    [utf8String("x".repeat(128)), `0c8180${"78".repeat(128)}`],
    [utf8String("x".repeat(256)), `0c820100${"78".repeat(256)}`],
    [time(Date.UTC(2049, 11, 31, 23, 59, 59)), `170d${Buffer.from("491231235959Z").toString("hex")}`],
    [time(Date.UTC(2050, 0, 1)), `180f${Buffer.from("20500101000000Z").toString("hex")}`],
  ])("%#", (bytes, hex) => {
    expect(bytes.toString("hex")).toBe(hex);
  });
});
