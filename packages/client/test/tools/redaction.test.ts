/**
 * Redaction: each form in which a secret's value may show up, with a control that shows it when redaction is off; and a
 * stream shows exactly what the whole would.
 */

import { fc, test as property } from "@fast-check/vitest";
import { describe, expect, test } from "vitest";
import { isCredentialName, Redactor, sandlotTools, scrubEnvironment } from "../../src/tools/index.ts";
import { openToolStage } from "./tool-stage.ts";

const SECRET = 'pa$$/w0rd+"qüote" \\end';

const base64 = (text: string) => Buffer.from(text).toString("base64");
const hex = (text: string) => Buffer.from(text).toString("hex");

const escaped = (bytes: Buffer) =>
  bytes.toString("latin1").replace(/[^ -~]/g, (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, "0")}`);

const FORMS: readonly (readonly [string, (secret: string) => string])[] = [
  ["verbatim", (secret) => secret],
  ["base64, alignment 0", (secret) => base64(secret)],
  ["base64, alignment 1", (secret) => base64(`x${secret}yz`)],
  ["base64, alignment 2", (secret) => base64(`xy${secret}z`)],
  ["base64, URL-safe", (secret) => Buffer.from(`:${secret}`).toString("base64url")],
  ["base64, wrapped", (secret) => base64(`${"-".repeat(50)}${secret}`).replace(/.{76}/g, "$&\n")],
  ["hexadecimal", (secret) => hex(secret)],
  ["hexadecimal, upper case", (secret) => hex(secret).toUpperCase()],
  ["hexadecimal, as od prints it", (secret) => hex(secret).replace(/../g, " $&")],
  ["URL-escaped", (secret) => encodeURIComponent(secret)],
  ["URL-escaped, lower case, all bytes", (secret) => hex(secret).replace(/../g, "%$&")],
  ["as a form field", (secret) => new URLSearchParams({ s: secret }).toString()],
  ["JSON-escaped", (secret) => JSON.stringify([secret])],
  ["JSON-escaped twice", (secret) => JSON.stringify(JSON.stringify([secret]))],
  [
    "JSON with \\u escapes",
    (secret) => JSON.stringify(secret).replace(/[^ -~]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`),
  ],
  [
    "JSON with \\u00XX escapes, upper case, twice",
    (secret) =>
      [...Array(secret.length).keys()]
        .map((at) => `\\\\u${secret.charCodeAt(at).toString(16).padStart(4, "0").toUpperCase()}`)
        .join(""),
  ],
  ["with \\x escapes where a byte is not printable", (secret) => escaped(Buffer.from(secret))],
  ["hexadecimal, mixed case", (secret) => [...hex(secret)].map((c, at) => (at % 3 ? c : c.toUpperCase())).join("")],
  ["URL-escaped, upper case, all bytes", (secret) => hex(secret).toUpperCase().replace(/../g, "%$&")],
  ["base64, URL-escaped", (secret) => encodeURIComponent(base64(`>${secret}?`))],
  ["base64, URL-safe, alignment 2", (secret) => Buffer.from(`??${secret}`).toString("base64url")],
  ["base64, with slashes as PHP writes them", (secret) => base64(secret).replaceAll("/", "\\/")],
  ["backslash-escaped", (secret) => secret.replace(/[^\w]/g, "\\$&")],
  ["reversed", (secret) => [...secret].reverse().join("")],
];

/** The longest remaining piece of the secret, in this form. */
function isGone(shown: string, form: string): boolean {
  const pieces = form.split(/[\s:|]+/).filter((piece) => piece.length >= 8);
  return pieces.every((piece) => !shown.includes(piece));
}

describe.each([SECRET, "ghp_0123456789abcdefABCDEF", "12345678", "x".repeat(40), "ключ-секрет-日本"])(
  "the secret %j",
  (secret) => {
    const redactor = new Redactor([secret]);

    test.each(FORMS)("%s", (_, form) => {
      const text = `before ${form(secret)} after`;
      const shown = redactor.redact(text);
      expect(shown).toContain("[redacted]");
      expect(shown).toMatch(/^before /);
      expect(shown).toMatch(/ after$/);
      expect(isGone(shown, form(secret))).toBe(true);
      // The control: without the secret nothing is redacted.
      expect(new Redactor(["another-secret"]).redact(text)).toBe(text);
    });

    test.each(FORMS)("%s, split over chunks at every place", (_, form) => {
      const text = `before ${form(secret)} after`;
      const whole = redactor.redact(text);
      for (let at = 1; at < text.length; at++) {
        const stream = redactor.stream();
        expect(stream.push(text.slice(0, at)) + stream.push(text.slice(at)) + stream.end()).toBe(whole);
      }
      const stream = redactor.stream();
      expect([...text].map((piece) => stream.push(piece)).join("") + stream.end()).toBe(whole);
    });
  },
);

describe("redaction", () => {
  test("leaves short values alone, because they are ordinary words", () => {
    expect(new Redactor(["hunter2"]).redact("hunter2")).toBe("hunter2");
  });

  test("takes out the longer of two secrets that overlap", () => {
    const redactor = new Redactor(["12345678", "x-12345678-y"]);
    expect(redactor.redact("x-12345678-y")).toBe("[redacted]");
    const stream = redactor.stream();
    expect(stream.push("x-12345678") + stream.push("-y") + stream.end()).toBe("[redacted]");
  });

  test("finds a value without the line's end that its file had", () => {
    expect(new Redactor(["tok-0815\n"]).redact("it is tok-0815, see")).toBe("it is [redacted], see");
  });

  test("takes out single lines of a key", () => {
    const key = "-----BEGIN KEY-----\nMIIBVgIBADANBgkqhkiG9w0B\nAQEFAASCAUAwggE8AgEAAkEA\n-----END KEY-----";
    expect(new Redactor([key]).redact("line 2: MIIBVgIBADANBgkqhkiG9w0B")).toBe("line 2: [redacted]");
  });

  test("does not find what it does not promise", () => {
    expect(new Redactor([SECRET]).redact([...SECRET].join("-"))).not.toContain("[redacted]");
  });

  property.prop([
    fc.array(
      fc.oneof(fc.constant("aaaabbbb"), fc.string({ maxLength: 12 }), fc.constant("a"), fc.constant("YWFhYWJiYmI=")),
    ),
    fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1 }),
  ])("shows of a stream what it shows of the whole", (parts, sizes) => {
    const text = parts.join("");
    const redactor = new Redactor(["aaaabbbb", "bbbbaaaabbbb"]);
    const stream = redactor.stream();
    let shown = "";
    for (let at = 0, n = 0; at < text.length; n++) {
      const size = sizes[n % sizes.length] ?? 1;
      shown += stream.push(text.slice(at, at + size));
      at += size;
    }
    expect(shown + stream.end()).toBe(redactor.redact(text));
  });

  test("is fast on much output", () => {
    const redactor = new Redactor([SECRET, "ghp_0123456789abcdefABCDEF"]);
    const text = "ordinary output of a program, with numbers 0123456789 and paths /a/b/c\n".repeat(50_000);
    const begun = performance.now();
    expect(redactor.redact(text)).toBe(text);
    expect(performance.now() - begun).toBeLessThan(3_000);
  });
});

describe("a text whose beginning was dropped", () => {
  const text = `before ${SECRET} after ${"x".repeat(1_000)} ${SECRET} end`;

  test("shows no piece of a secret that was cut in two, wherever the cut is", () => {
    const redactor = new Redactor([SECRET]);
    for (let cut = 0; cut < text.length; cut++) {
      const shown = redactor.redactEnd(text.slice(cut));
      for (let at = 0; at + 4 <= SECRET.length; at++) expect(shown).not.toContain(SECRET.slice(at, at + 4));
    }
    // The control: the ordinary way shows the second half.
    expect(redactor.redact(text.slice(text.indexOf(SECRET) + 4))).toContain(SECRET.slice(4, 12));
    expect(redactor.redactEnd(text)).toMatch(/x{500} \[redacted\] end$/);
  });

  test("is shown whole where there is no secret", () => {
    expect(new Redactor([]).redactEnd(text)).toBe(text);
  });
});

describe("in a run", () => {
  test.each(FORMS)("%s: hidden, and shown when redaction is off", async (_, form) => {
    await using stage = await openToolStage();
    const secrets = { TOKEN: SECRET };
    await using tools = sandlotTools(stage.fleet, { thread: "t1", secrets });
    await using control = sandlotTools(stage.fleet, { thread: "t1", secrets, redact: false });
    const content = `before ${form(SECRET)} after`;
    await tools.run.use(({ files }) => files.write("/mnt/user-data/workspace/form", content));
    for (const [tool, input] of [
      ["bash", { command: "cat form" }],
      ["bash", { command: "cat form >&2" }],
      ["read_file", { path: "form" }],
    ] as const) {
      expect((await control.call(tool, input)).text).toContain(content);
      const shown = await tools.call(tool, input);
      expect(shown.text).toContain("[redacted]");
      expect(isGone(JSON.stringify([shown.text, shown.facts]), form(SECRET))).toBe(true);
    }
  });

  test("a secret at the place where something is cut shows no part of itself", async () => {
    await using stage = await openToolStage();
    const secrets = { TOKEN: "s3cr3t-value-0815" };
    await using tools = sandlotTools(stage.fleet, { thread: "t1", secrets });
    await using control = sandlotTools(stage.fleet, { thread: "t1", secrets, redact: false });
    for (let before = 180; before < 200; before++)
      await tools.run.use(({ files }) =>
        files.append("/mnt/user-data/workspace/cut", `${"x".repeat(before)}${secrets.TOKEN} and so on\n`),
      );
    await tools.run.use(({ files }) =>
      files.write("/mnt/user-data/workspace/long", `${"x".repeat(49_990)}${secrets.TOKEN} ${"y".repeat(50)}`),
    );
    for (const [tool, input] of [
      ["grep", { pattern: "xxx", path: "cut" }],
      ["read_file", { path: "long" }],
    ] as const) {
      expect((await control.call(tool, input)).text).toContain("s3cr3t");
      const { text, facts } = await tools.call(tool, input);
      expect(text).toContain("x".repeat(150));
      expect(JSON.stringify([text, facts])).not.toMatch(/s3c/);
    }
  });

  const commands = [
    'echo "$TOKEN"',
    'printf %s "$TOKEN" | base64',
    'printf x%s "$TOKEN" | base64',
    'printf xy%s "$TOKEN" | base64 -w 0',
    'printf %s "$TOKEN" | rev',
    'echo "$TOKEN" >&2',
    "env",
    'echo "$TOKEN" > f; cat f; cat missing-$TOKEN',
  ];

  test.each(commands)("%s", async (command) => {
    await using stage = await openToolStage();
    const secrets = { TOKEN: "s3cr3t-value-0815" };
    await using tools = sandlotTools(stage.fleet, { thread: "t1", secrets });
    await using control = sandlotTools(stage.fleet, { thread: "t2", secrets, redact: false });
    const open = await control.call("bash", { command });
    const shown = await tools.call("bash", { command });
    expect(open.text).not.toContain("[redacted]");
    expect(shown.text).toContain("[redacted]");
    for (const form of ["s3cr3t-value", "czNjcjN0LXZhbHVl", "MzNjcjN0", "5180-eulav"])
      expect(JSON.stringify(shown)).not.toContain(form);
    expect(shown.text).not.toBe(open.text);
  });

  test("files that we write ourselves are redacted, a replaced token stays hidden, and nothing of it is in events", async () => {
    await using stage = await openToolStage();
    let token = "first-token-00000001";
    await using tools = sandlotTools(stage.fleet, { thread: "t1", secrets: () => ({ TOKEN: token }) });
    const { text } = await tools.call("bash", { command: 'for i in $(seq 1 2000); do echo "$i $TOKEN"; done' });
    const path = /are in (\S+);/.exec(text)?.[1] ?? "";
    expect(await tools.run.use((sandbox) => sandbox.files.readText(path))).toMatch(/^1 \[redacted\]\n2 \[redacted\]\n/);
    await tools.call("bash", { command: 'echo "$TOKEN" > old' });
    token = "second-token-0000002";
    expect((await tools.call("bash", { command: 'cat old; echo "$TOKEN"' })).text).toBe(
      "[redacted]\n[redacted]\n[exit code: 0]",
    );
    expect(JSON.stringify(stage.events)).not.toMatch(/first-token|second-token/);
  });
});

describe("the environment", () => {
  test.each([
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "npm_config_password",
    "SENTRY_DSN",
    "database_url",
    "GH_PAT",
    "REDISCLI_AUTH",
  ])("%s looks like a credential", (name) => {
    expect(isCredentialName(name)).toBe(true);
  });

  test("others pass, and what is not set is left out", () => {
    expect(scrubEnvironment({ HOME: "/root", LANG: "C", API_KEY: "x", NONE: undefined })).toEqual({
      HOME: "/root",
      LANG: "C",
    });
  });
});
