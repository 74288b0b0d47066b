/** Commands: input and output. */

import { SANDBOX_LIMITS } from "@sandlot/contract";
import type { BackendCase } from "./stage.ts";

export const execCases: readonly BackendCase[] = [
  {
    name: "a string goes through a shell",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { stdout } = await sandbox.exec(
        'x=world; echo "hello $x" | tr a-z A-Z && (echo "$((2 + 3))"; false) || echo failed',
      );
      stage.expect(stdout).toBe("HELLO WORLD\n5\nfailed\n");
    },
  },
  {
    name: "an array is run as it is",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { stdout } = await sandbox.exec(["echo", "$HOME", "a  b", "*", ";", "'"]);
      stage.expect(stdout).toBe("$HOME a  b * ; '\n");
    },
  },
  {
    name: "a result has everything",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { durationMs, ...result } = await sandbox.exec("echo out; echo err >&2; exit 3", { execId: "mine" });
      stage.expect(result).toEqual({
        execId: "mine",
        status: "completed",
        exitCode: 3,
        signal: null,
        stdout: "out\n",
        stderr: "err\n",
        stdoutDroppedBytes: 0,
        stderrDroppedBytes: 0,
      });
      stage.expect(durationMs).toBeGreaterThanOrEqual(0);
    },
  },
  {
    name: "exit codes come back as they are",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const codes: (number | null)[] = [];
      for (const code of [0, 1, 2, 125, 254, 255]) codes.push((await sandbox.exec(`exit ${code}`)).exitCode);
      stage.expect(codes).toEqual([0, 1, 2, 125, 254, 255]);
    },
  },
  {
    name: "what cannot be run is a result: 127 when it is missing, 126 when it is no program",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      for (const command of ["no-such-command", ["no-such-command"]]) {
        const { status, exitCode, stderr } = await sandbox.exec(command);
        stage.expect([status, exitCode, stderr !== ""]).toEqual(["completed", 127, true]);
      }
      await sandbox.files.write("/mnt/user-data/workspace/plain", "text", { mode: 0o644 });
      stage.expect((await sandbox.exec("./plain")).exitCode).toBe(126);
    },
  },
  {
    name: "the empty string does nothing, the empty array and a NUL byte are refused",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      stage.expect(await sandbox.exec("")).toMatchObject({ status: "completed", exitCode: 0, stdout: "" });
      await stage.rejects(sandbox.exec([]), "invalid_request");
      await stage.rejects(sandbox.exec("echo a\0b"), "invalid_request");
      await stage.rejects(sandbox.exec(["echo", "a\0b"]), "invalid_request");
    },
  },
  {
    name: "a command begins in the workspace, or where it is told",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      stage.expect((await sandbox.exec("pwd")).stdout).toBe("/mnt/user-data/workspace\n");
      stage.expect((await sandbox.exec(["pwd"])).stdout).toBe("/mnt/user-data/workspace\n");
      stage
        .expect((await sandbox.exec("pwd", { cwd: "/mnt/user-data/outputs" })).stdout)
        .toBe("/mnt/user-data/outputs\n");
    },
  },
  {
    name: "a directory that is none is refused",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      await sandbox.files.write("/tmp/file", "");
      await stage.rejects(sandbox.exec("pwd", { cwd: "/tmp/missing" }), "file_not_found");
      await stage.rejects(sandbox.exec("pwd", { cwd: "/tmp/file" }), "not_a_directory");
      await stage.rejects(sandbox.exec("pwd", { cwd: "tmp" }), "invalid_path");
    },
  },
  {
    name: "the environment is added to the sandbox's own, for this command only",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const env = { SUITE_A: "one two", _: "ignored by shells", SUITE_2: "ünïcode\n$x" };
      const { stdout } = await sandbox.exec(
        'printf "%s|" "$SUITE_A" "$SUITE_2"; command -v cat >/dev/null && echo found',
        { env },
      );
      stage.expect(stdout).toBe("one two|ünïcode\n$x|found\n");
      stage.expect((await sandbox.exec('echo "[$SUITE_A]"')).stdout).toBe("[]\n");
    },
  },
  {
    name: "names that are no POSIX names are refused",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      for (const name of ["", "1A", "A-B", "A B", "A=B", "É", "A\n"]) {
        await stage.rejects(sandbox.exec("echo no", { env: { [name]: "x" } }), "invalid_request");
      }
      for (const name of ["A", "_A", "a1", "A_"])
        stage.expect((await sandbox.exec("true", { env: { [name]: "x" } })).exitCode).toBe(0);
    },
  },
  {
    name: "standard input is what was given, and at its end otherwise",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      stage.expect((await sandbox.exec("cat", { stdin: "grüße\n" })).stdout).toBe("grüße\n");
      stage.expect((await sandbox.exec(["cat"], { stdin: "x" })).stdout).toBe("x");
      stage.expect(await sandbox.exec("cat; echo done")).toMatchObject({ stdout: "done\n", exitCode: 0 });
      stage.expect((await sandbox.exec("true", { stdin: "nobody reads this ".repeat(50_000) })).exitCode).toBe(0);
    },
  },
  {
    name: "bytes go in and into a file unchanged",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const bytes = Uint8Array.from({ length: 100_000 }, (_, index) => (index * 7) % 256);
      await sandbox.exec("cat > /tmp/bytes", { stdin: bytes });
      stage.expect(Buffer.compare(await sandbox.files.read("/tmp/bytes"), bytes)).toBe(0);
    },
  },
  {
    name: "files written by calls are seen by commands, and the other way round",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      await sandbox.files.write("/mnt/user-data/workspace/a", "from a call");
      stage.expect((await sandbox.exec("cat a; echo 'from a command' > b")).stdout).toBe("from a call");
      stage.expect(await sandbox.files.readText("/mnt/user-data/workspace/b")).toBe("from a command\n");
    },
  },
  {
    name: "nothing of one command's shell is left for the next",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      await sandbox.exec("cd /tmp; export SUITE_B=1");
      stage.expect((await sandbox.exec('pwd; echo "[$SUITE_B]"')).stdout).toBe("/mnt/user-data/workspace\n[]\n");
    },
  },
  {
    name: "commands run at the same time",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const waiting = sandbox.exec("while [ ! -e /tmp/flag ]; do sleep 0.02; done; echo seen", { timeoutMs: 10_000 });
      await sandbox.exec("touch /tmp/flag");
      stage.expect((await waiting).stdout).toBe("seen\n");
    },
  },
  {
    name: "a writer whose reader has gone comes to an end",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      stage
        .expect(await sandbox.exec("yes | head -n 2", { timeoutMs: 10_000 }))
        .toMatchObject({ status: "completed", stdout: "y\ny\n" });
    },
  },
  {
    name: "output is kept up to the limit, and beyond it the oldest bytes are dropped and counted",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const max = SANDBOX_LIMITS.execOutputMaxBytes;
      const fill = (count: number) => `head -c ${count} /dev/zero | tr '\\0' a`;
      const exact = await sandbox.exec(`printf X; ${fill(max - 1)}`, { outputMaxBytes: max });
      stage.expect([exact.stdout.length, exact.stdoutDroppedBytes, exact.stdout.charAt(0)]).toEqual([max, 0, "X"]);
      const over = await sandbox.exec(`printf X; ${fill(max)}`, { outputMaxBytes: max });
      stage.expect([over.stdout.length, over.stdoutDroppedBytes, over.stdout.charAt(0)]).toEqual([max, 1, "a"]);
      const err = await sandbox.exec(`{ printf XY; ${fill(max - 1)}; printf Z; } >&2`, { outputMaxBytes: max });
      stage
        .expect([err.stderr.length, err.stderrDroppedBytes, err.stderr.slice(-2), err.stdout])
        .toEqual([max, 2, "aZ", ""]);
    },
  },
  {
    name: "a result holds the end of the output, and tells how much is before it and how to get it",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const max = SANDBOX_LIMITS.execResultMaxBytes;
      const fill = `head -c ${max} /dev/zero | tr '\\0' a`;
      const result = await sandbox.exec(`printf XY; ${fill}; { printf Z; ${fill}; } >&2`);
      stage.expect([result.stdout.length, result.stderr.length]).toEqual([max, max]);
      stage.expect([result.stdoutDroppedBytes, result.stderrDroppedBytes]).toEqual([0, 0]);
      stage.expect(result.omitted).toMatchObject({ stdoutBytes: 2, stderrBytes: 1 });
      let first = "";
      for await (const event of sandbox.execs.follow(result.execId)) {
        if (event.type !== "output" || event.stream !== "stdout") continue;
        first = new TextDecoder().decode(event.bytes).slice(0, 3);
        break;
      }
      stage.expect(first).toBe("XYa");
      const little = await sandbox.exec("printf 'aöö'", { outputMaxBytes: 3 });
      stage.expect([little.stdout, little.omitted?.stdoutBytes]).toEqual(["ö", 3]);
      const whole = await sandbox.exec("printf 1234", { outputMaxBytes: 4 });
      stage.expect([whole.stdout, whole.omitted === undefined]).toEqual(["1234", true]);
    },
  },
  {
    name: "an exec id is one run, while it runs and after it has ended",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const call = () => sandbox.exec("echo x >> runs; sleep 0.1; echo done; exit 4", { execId: "once" });
      const [first, second] = await Promise.all([call(), call()]);
      const third = await call();
      stage.expect(first).toMatchObject({ execId: "once", stdout: "done\n", exitCode: 4 });
      stage.expect([second, third]).toEqual([first, first]);
      stage.expect(await sandbox.files.readText("/mnt/user-data/workspace/runs")).toBe("x\n");
    },
  },
  {
    name: "an exec id with another command is a conflict, and without one each call is its own",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      await sandbox.exec("echo a", { execId: "taken" });
      await stage.rejects(sandbox.exec("echo b", { execId: "taken" }), "exec_conflict");
      await stage.rejects(sandbox.exec(["echo", "a"], { execId: "taken" }), "exec_conflict");
      const [one, two] = [await sandbox.exec("echo a"), await sandbox.exec("echo a")];
      stage.expect(one.execId !== "" && one.execId !== two.execId).toBe(true);
    },
  },
  {
    name: "exec ids belong to their sandbox",
    run: async (stage) => {
      const [one, two] = [await stage.sandbox(), await stage.sandbox()];
      stage.expect((await one.exec("echo one", { execId: "same" })).stdout).toBe("one\n");
      stage.expect((await two.exec("echo two", { execId: "same" })).stdout).toBe("two\n");
    },
  },
];
