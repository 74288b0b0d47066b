import { describe, expect, it } from "vitest";
import { canonicalAddress, parseRange, rangeContains, whyNotPublic } from "../../../src/backend/network/addresses.ts";

describe("which addresses are public", () => {
  it.each([
    "1.1.1.1 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 168.63.129.15",
    "168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0 192.167.255.255",
    "192.169.0.0 198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0 223.255.255.255",
    "2000:: 2001:200:: 2001:db7:ffff:: 2001:db9:: 2003:: 2606:4700::1111 3ffe:: 3fff:1000::",
    "::ffff:1.1.1.1 ::ffff:101:101 64:ff9b::1.1.1.1",
  ])("lets %s through", (list) => {
    for (const address of list.split(" ")) expect([address, whyNotPublic(address)]).toEqual([address, null]);
  });

  it.each([
    "0.0.0.0 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.255",
    "168.63.129.16 169.254.0.0 169.254.169.254 169.254.255.255 172.16.0.0 172.31.255.255 192.0.0.0 192.0.0.192 192.0.2.1",
    "192.88.99.1 192.168.0.0 192.168.255.255 198.18.0.0 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255",
    "240.0.0.0 255.255.255.255",
    ":: ::1 ::2 ::7f00:1 ::127.0.0.1 100:: 1fff:: 2001:: 2001:0:1:2::3 2001:1ff:ffff:: 2001:db8::1 2002:: 2002:7f00:1::",
    "2002:0101:0101::1 3fff:: 3fff:fff:ffff:: 4000:: 5f00:: fc00:: fd00:ec2::254 fd20:ce::254 fe80::1 febf:: fec0::1 ff02::1",
    "::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 0:0:0:0:0:ffff:a00:1 ::ffff:0:0",
    "64:ff9b::127.0.0.1 64:ff9b::a00:1 64:ff9b::169.254.169.254 64:ff9b:1::1.1.1.1 64:ff9b:0:1::1",
    "fe80::1%eth0 2606:4700::1%1 1.1.1 01.1.1.1 localhost",
  ])("refuses %s", (list) => {
    for (const address of list.split(" ")) expect([address, whyNotPublic(address)]).not.toEqual([address, null]);
  });

  it("says which range it is", () => {
    expect(whyNotPublic("10.1.2.3")).toEqual({ range: "10.0.0.0/8", meaning: "private" });
    expect(whyNotPublic("::ffff:169.254.169.254")?.range).toBe("169.254.0.0/16");
  });
});

describe("ranges", () => {
  it("hold what lies in them, to the bit", () => {
    const range = parseRange("10.1.2.0/23")!;
    expect(["10.1.2.0", "10.1.3.255", "::ffff:10.1.2.7"].every((address) => rangeContains(range, address))).toBe(true);
    expect(["10.1.1.255", "10.1.4.0", "::a01:207"].some((address) => rangeContains(range, address))).toBe(false);
    expect(rangeContains(parseRange("fd00::/9")!, "fd7f::1")).toBe(true);
    expect(rangeContains(parseRange("fd00::/9")!, "fd80::1")).toBe(false);
  });

  it.each(["", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8/8", "10.0.0/8", "::/129", "host", "fe80::1%eth0/64"])(
    "are not %j",
    (text) => {
      expect(parseRange(text)).toBeNull();
    },
  );

  it("have one spelling per address", () => {
    expect(canonicalAddress("2606:4700:0:0::0:1")).toBe("2606:4700::1");
    expect(canonicalAddress("::FFFF:1.2.3.4")).toBe("1.2.3.4");
  });
});
