/** A mistake in address, key or certificate is reported once, by its own name, and not as an unreachable gateway. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { SandlotError } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { SandlotClient } from "../../src/index.ts";

describe("an address", () => {
  test.each(["127.0.0.1:28750", "localhost:8750", "ftp://127.0.0.1", "", "http://", "/v1"])(
    "%j is refused at once",
    (url) => {
      expect(() => new SandlotClient({ url })).toThrow(
        expect.objectContaining({ code: "gateway_address_invalid", retryable: false }),
      );
    },
  );
});

describe("a key", () => {
  test("from a file may end with a newline", async () => {
    let sent: string | null = null;
    const given: typeof fetch = async (_address, init) => {
      sent = new Headers(init?.headers).get("authorization");
      return Response.json({ sandboxes: [] });
    };
    await new SandlotClient({ url: " http://127.0.0.1:1/ ", apiKey: "slk_a_b\n", fetch: given }).listSandboxes();
    expect(sent).toBe("Bearer slk_a_b");
  });

  test.each(["", "  \n", "slk_a\nb", "schlüssel"])("%j is refused at once, and not shown", (apiKey) => {
    const make = () => new SandlotClient({ url: "http://127.0.0.1:1", apiKey });
    expect(make).toThrow(expect.objectContaining({ code: "gateway_address_invalid" }));
    if (apiKey.trim() !== "") expect(make).not.toThrow(apiKey);
  });
});

test("a certificate that is not trusted is called so, once", async () => {
  const folder = mkdtempSync(join(tmpdir(), "slt-"));
  const [keyFile, certFile] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  const command = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"];
  execFileSync("openssl", [...command, "-keyout", keyFile, "-out", certFile], { stdio: "ignore" });
  const [key, cert] = [readFileSync(keyFile), readFileSync(certFile)];
  let asked = 0;
  const server = createServer({ key, cert }, () => (asked += 1));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const client = new SandlotClient({ url });
    for (const call of [() => client.listSandboxes(), () => client.uploadFiles("t", [{ name: "a", content: "x" }])]) {
      const error = await call().catch((refusal: unknown) => refusal);
      expect(error).toMatchObject({ code: "gateway_untrusted", retryable: false });
    }
    expect(asked).toBe(0);
  } finally {
    server.close();
    rmSync(folder, { recursive: true });
  }
});

test("an error that is printed says what to do", () => {
  const error = new SandlotError("thread_not_found", { thread: "t1" });
  expect(inspect(error)).toContain("sandlot ps --threads");
  expect(JSON.parse(JSON.stringify(error))).toMatchObject({ code: "thread_not_found", remedy: expect.any(String) });
});
