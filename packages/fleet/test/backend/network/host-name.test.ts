import { describe, expect, it } from "vitest";
import { parseAuthority, parseHost, writtenAuthority } from "../../../src/backend/network/host-name.ts";

describe("one spelling for every host", () => {
  it.each([
    ["EXAMPLE.org.", "example.org"],
    ["bücher.example", "xn--bcher-kva.example"],
    ["xn--bcher-kva.example", "xn--bcher-kva.example"],
    ["ｅｘａｍｐｌｅ.org", "example.org"],
    ["a_b.example", "a_b.example"],
  ])("reads %s as the name %s", (text, name) => {
    expect(parseHost(text)).toEqual({ kind: "name", text: name });
  });

  it.each([
    ..."127.0.0.1 127.0.0.1. 127.1 2130706433 0x7f000001 0x7f.1 017700000001 0177.0.0.1 127。0。0。1 ①②⑦.0.0.1"
      .split(" ")
      .map((text): [string, string] => [text, "127.0.0.1"]),
    ["[::1]", "::1"],
    ["[::ffff:127.0.0.1]", "127.0.0.1"],
    ["[0:0:0:0:0:ffff:7f00:1]", "127.0.0.1"],
    ["0", "0.0.0.0"],
  ])("reads %s as the address %s", (text, address) => {
    expect(parseHost(text)).toEqual({ kind: "address", text: address });
  });

  it.each([
    "",
    ".",
    "a..b",
    "example.org..",
    "-a.example",
    "user@example.org",
    "example.org/path",
    "example.org\\evil",
    "exa mple.org",
    "example.org%00",
    "%31%32%37.0.0.1",
    "example.org#x",
    "[fe80::1%eth0]",
    "[::1",
    "::1",
    "256.1.1.1",
    "1.2.3.4.5",
    "example.0x10",
    "a\tb.example",
    `${"a".repeat(64)}.example`,
    `${"abcdefg.".repeat(32)}example`,
  ])("does not read %j", (text) => {
    expect(parseHost(text)).toBeNull();
  });
});

describe("authorities", () => {
  it.each([
    ["example.org:443", "example.org:443"],
    ["[2606:4700::1]:80", "[2606:4700::1]:80"],
    ["2130706433:80", "127.0.0.1:80"],
    [Buffer.from("bücher.example:443").toString("latin1"), "xn--bcher-kva.example:443"],
  ])("reads %s", (text, written) => {
    expect(writtenAuthority(parseAuthority(text)!)).toBe(written);
  });

  it.each([
    "example.org",
    "example.org:",
    "example.org:0",
    "example.org:65536",
    "a:1:2",
    "user@a:1",
    "a:+1",
    "a: 1",
    ":80",
  ])("does not read %j", (text) => {
    expect(parseAuthority(text)).toBeNull();
  });
});
