/** Behaviour of the tools that only the library shows. */

import { describe, expect, test } from "vitest";
import { z } from "zod";
import { SANDBOX_TOOLS, sandboxInstructions, sandlotTools } from "../../src/tools/index.ts";
import { openToolStage } from "./tool-stage.ts";

test("every output has a code that programs can act on", async () => {
  await using stage = await openToolStage();
  await using tools = sandlotTools(stage.fleet, { thread: "t1" });
  const codes = async (tool: string, input: unknown) => (await tools.call(tool, input)).code;
  expect(await codes("bash", { command: "true" })).toBeNull();
  expect(await codes("bash", { command: "false" })).toBe("command_failed");
  expect(await codes("bash", { command: "sleep 9", timeout_seconds: 0.05 })).toBe("command_timed_out");
  expect(await codes("bash", { command: "echo x | bash" })).toBe("command_blocked");
  expect(await codes("bash", {})).toBe("invalid_arguments");
  expect(await codes("read_file", { path: "/none" })).toBe("file_not_found");
  expect(await codes("teleport", {})).toBe("unknown_tool");
  const { facts } = await tools.call("bash", { command: "echo out; echo err >&2; exit 2" });
  expect(facts).toMatchObject({ status: "completed", exitCode: 2, stdout: "out\n", stderr: "err\n" });
});

test("twelve parallel edits of one file: each is made or refused, none is lost", async () => {
  await using stage = await openToolStage();
  await using first = sandlotTools(stage.fleet, { thread: "t1" });
  const path = "/mnt/user-data/workspace/shared";
  await first.call("write_file", {
    path,
    content: Array.from({ length: 12 }, (_, n) => `line ${n}: todo;\n`).join(""),
  });
  const made = await Promise.all(
    Array.from({ length: 12 }, async (_, n) => {
      await using tools = sandlotTools(stage.fleet, { thread: "t1" });
      for (let attempt = 0; attempt < 50; attempt++) {
        await tools.call("read_file", { path });
        const { code } = await tools.call("str_replace", {
          path,
          old_str: `line ${n}: todo;`,
          new_str: `line ${n}: done;`,
        });
        if (code === null) return attempt;
        expect(code).toBe("read_first");
      }
      throw new Error("never its turn");
    }),
  );
  expect(made).toHaveLength(12);
  expect((await first.call("read_file", { path })).text.match(/done/g)).toHaveLength(12);
});

test("the audit records the calls, without secrets", async () => {
  await using stage = await openToolStage();
  const seen: unknown[] = [];
  await using tools = sandlotTools(stage.fleet, {
    thread: "t1",
    secrets: { TOKEN: "s3cr3t-value-0815" },
    onAudit: (entry) => seen.push(entry),
  });
  await tools.call("bash", { command: "echo s3cr3t-value-0815" });
  await tools.call("bash", { command: "cat /etc/shadow" });
  expect(seen).toEqual([
    { thread: "t1", command: "echo [redacted]", verdict: "pass", rule: null, reason: null },
    {
      thread: "t1",
      command: "cat /etc/shadow",
      verdict: "block",
      rule: "password-hashes",
      reason: "reads password hashes",
    },
  ]);
});

describe("output that a limit cuts", () => {
  const path = "/mnt/user-data/workspace/f";

  async function withFile(content: string, use: (tools: ReturnType<typeof sandlotTools>) => Promise<void>) {
    await using stage = await openToolStage();
    await using tools = sandlotTools(stage.fleet, { thread: "t1" });
    await tools.run.use(({ files }) => files.write(path, content));
    await use(tools);
  }

  test("a line that is too long for read_file is cut within, and says how to see its rest", () =>
    withFile(`first\n${"x".repeat(60_000)}\nlast\n`, async (tools) => {
      const whole = (await tools.call("read_file", { path })).text;
      expect(whole).toBe("first\n[cut: lines 1 to 1 of 3 are shown. Go on with start_line=2]");
      const second = (await tools.call("read_file", { path, start_line: 2 })).text;
      expect(second).toMatch(
        /^x{50000}\n\[cut: 50000 of the 60000 characters of line 2 are shown\. See the rest with bash, for example `sed -n 2p FILE \| cut -c 50001-`, the next line with start_line=3\]$/,
      );
      expect((await tools.call("read_file", { path, start_line: 3 })).text).toBe("last");
      expect((await tools.call("bash", { command: `sed -n 2p ${path} | cut -c 50001- | wc -c` })).text).toContain(
        "10001",
      );
    }));

  test("every line of a long file can be reached by going on", () =>
    withFile(Array.from({ length: 30_000 }, (_, n) => `${n} ${"y".repeat(n % 97)}\n`).join(""), async (tools) => {
      let next: number | undefined = 1;
      let all = "";
      while (next !== undefined) {
        const { text } = await tools.call("read_file", { path, start_line: next });
        const cut: RegExpExecArray | null = /\[cut: .* Go on with start_line=(\d+)\]$/.exec(text);
        all += cut === null ? `${text}\n` : text.slice(0, cut.index);
        next = cut === null ? undefined : Number(cut[1]);
      }
      expect(all).toBe(await tools.run.use(({ files }) => files.readText(path)));
    }));

  test("grep says what it has not searched; so does the advice about a long output", () =>
    withFile("needle\n".repeat(200_000), async (tools) => {
      await tools.call("bash", { command: `(seq -s needle 1 1000; echo needle) > /mnt/user-data/workspace/long` });
      const { text } = await tools.call("grep", { path: "/mnt/user-data/workspace", pattern: "needle" });
      expect(text).toBe(
        "Found 1 match under /mnt/user-data/workspace\n/mnt/user-data/workspace/long:2: needle\n" +
          "[not searched: 1 file over 1000000 bytes, 1 line over 2000 characters; use `grep` in bash]",
      );
      const small = (await tools.call("bash", { command: `head -n 3000 ${path}` })).text;
      expect(small).toContain("or search them with grep.");
      const large = (await tools.call("bash", { command: `cat ${path}` })).text;
      expect(large).toContain("or search them with `grep` in bash.");
    }));

  test("read_file of what is too large says how to see parts of it", () =>
    withFile("0123456789\n".repeat(1_000_000), async (tools) => {
      const { text, code } = await tools.call("read_file", { path, start_line: 1, end_line: 2 });
      expect(code).toBe("file_too_large");
      expect(text).toMatch(
        /^Error: .* has 11000000 bytes; read_file takes up to 10485760\. Look at parts of it with bash/,
      );
    }));

  test("ls shows the first level when the second is too much, so that packages hide nothing", async () => {
    await using stage = await openToolStage();
    await using tools = sandlotTools(stage.fleet, { thread: "t1" });
    await tools.run.use(async ({ files }) => {
      for (let n = 0; n < 1_001; n++) await files.mkdir(`/mnt/user-data/workspace/node_modules/p${n}`);
      await files.write("/mnt/user-data/workspace/src/a.ts", "");
    });
    const lines = (await tools.call("ls", { path: "/mnt/user-data/workspace" })).text.split("\n");
    expect(lines).toEqual([
      "/mnt/user-data/workspace/node_modules/",
      "/mnt/user-data/workspace/src/",
      "[there are more than 1000 entries further down, so only the first level is shown; list a directory of it]",
    ]);
  });
});

test("unavailable secrets keep a command from running, are not explained to the model, and do not end the run", async () => {
  await using stage = await openToolStage();
  let broken = false;
  const secrets = async () => {
    if (broken) throw new Error("vault says: s3cr3t-value-0815");
    return { TOKEN: "s3cr3t-value-0815" };
  };
  await using tools = sandlotTools(stage.fleet, { thread: "t1", secrets });
  await tools.call("bash", { command: 'echo "$TOKEN" > f' });
  broken = true;
  const refused = await tools.call("bash", { command: "touch ran" });
  expect(refused).toMatchObject({ isError: true, code: "secrets_unavailable" });
  expect(JSON.stringify(refused)).not.toContain("s3cr3t");
  expect((await tools.call("read_file", { path: "f" })).text).toBe("[redacted]");
  expect((await tools.call("ls", { path: "." })).text).toBe("/mnt/user-data/workspace/f");
  broken = false;
  expect((await tools.call("bash", { command: "cat f" })).text).toContain("[redacted]");
});

describe("the model's instructions", () => {
  const none = { network: { mode: "none" as const, allow: [] }, programs: ["python3", "git"] };
  const some = { network: { mode: "allowlist" as const, allow: ["pypi.org:443"] } };

  test("names the network, the account and the programs", () => {
    expect(sandboxInstructions(none)).toContain("There is no network");
    expect(sandboxInstructions(none)).toContain("no root and no sudo");
    expect(sandboxInstructions(none)).toContain("Programs: python3, git.");
    expect(sandboxInstructions(some)).toContain("reaches only pypi.org:443");
    expect(sandboxInstructions({ network: { mode: "open", allow: [] } })).toContain("reaches public addresses");
    expect(sandboxInstructions()).toContain("SANDLOT_NETWORK");
  });

  test("is in the description of bash, with the limits of this tool box", async () => {
    await using stage = await openToolStage();
    const options = { thread: "t1", commandTimeoutMs: 50_000, outputBudgetChars: 700 };
    await using tools = sandlotTools(
      { acquire: (request) => stage.fleet.acquire(request), about: () => none },
      options,
    );
    const bash = tools.tools.find(({ name }) => name === "bash");
    expect(bash?.description).toContain("There is no network");
    expect(bash?.description).toContain("variables and functions stay");
    expect(bash?.description).toContain("over 700 characters");
    expect(JSON.stringify(z.toJSONSchema(bash?.input ?? z.object({})))).toContain("Default 50.");
  });

  test("comes with a lookup that failed, and with a sudo that is not there, once", async () => {
    await using stage = await openToolStage();
    const source = { acquire: stage.fleet.acquire, about: () => none };
    await using tools = sandlotTools(source, { thread: "t1" });
    const lookup = await tools.call("bash", { command: "echo 'curl: (6) Could not resolve host: x.org' >&2; exit 6" });
    expect(lookup).toMatchObject({ isError: false, code: "command_failed" });
    expect(lookup.text).toContain("[this sandbox has no network]");
    const sudo = await tools.call("bash", { command: "sudo apt install x" });
    expect(sudo.text).toContain("[there is no root and no sudo in this sandbox]");
    expect(sudo.text).not.toContain("[warning:");
    const found = await tools.call("bash", { command: "echo 'could not resolve host'" });
    expect(found.text).not.toContain("network");
  });

  test("has limits of its own for read_file and ls, and refuses what is no limit", async () => {
    await using stage = await openToolStage();
    await using tools = sandlotTools(stage.fleet, { thread: "t1", readMaxChars: 10, listMaxEntries: 2 });
    await tools.call("bash", { command: "printf 'one\\ntwo\\nthree\\n' > a; touch b c; echo 0123456789abc > long" });
    const read = await tools.call("read_file", { path: "a" });
    expect(read.text).toBe("one\ntwo\n[cut: lines 1 to 2 of 3 are shown. Go on with start_line=3]");
    expect((await tools.call("read_file", { path: "long" })).text).toMatch(
      /^0123456789\n\[cut: 10 of the 13 characters/,
    );
    const listed = await tools.call("ls", { path: "/mnt/user-data/workspace" });
    expect(listed.text).toContain("[only the first 2 entries;");
    expect(listed.facts.paths).toHaveLength(2);
    for (const wrong of [{ readMaxChars: 0 }, { listMaxEntries: 10_001 }, { outputBudgetChars: 1.5 }])
      expect(() => sandlotTools(stage.fleet, { thread: "t1", ...wrong })).toThrow(
        expect.objectContaining({ code: "invalid_request", details: expect.objectContaining(wrongField(wrong)) }),
      );
  });

  test("has schemas with the real range", () => {
    const schemas = JSON.stringify(SANDBOX_TOOLS.map(({ input }) => z.toJSONSchema(input, { io: "input" })));
    expect(schemas).not.toContain(String(Number.MIN_SAFE_INTEGER));
  });

  test("is why the tools have ended, when they have", async () => {
    await using stage = await openToolStage();
    const tools = sandlotTools(stage.fleet, { thread: "t1" });
    await tools.end();
    await expect(tools.call("bash", { command: "true" })).rejects.toThrow(/tools of this run have ended.*onFinish/);
  });
});

function wrongField(wrong: object): { field: string | undefined } {
  return { field: Object.keys(wrong)[0] };
}
