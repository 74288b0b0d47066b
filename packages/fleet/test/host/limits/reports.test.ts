/** The reports of a local sandbox that hits its limits: commands however they are run, uploads, usage. */

import { afterAll, describe, expect, it } from "vitest";
import { blueprint, isRoot, onStage, removeDaemon } from "../../backends/local/local-harness.ts";

const MIB = 1024 * 1024;
const HERE = "/mnt/user-data/workspace";
const HUNGRY = `perl -e 'my $x = "a" x (300 << 20)'`;

afterAll(removeDaemon);

describe("a sandbox with limits", { timeout: 120_000 }, () => {
  it("says which one it ran into, and what it uses", (context) => {
    if (!isRoot) return context.skip("control groups take root");
    return onStage(async (stage) => {
      const limits = { memoryBytes: 160 * MIB, pidsMax: 64, diskBytes: 20 * MIB };
      const { target } = await stage.make(stage.newKey(), { blueprint: { ...blueprint, limits } });
      const { sandbox } = await stage.attach(target);

      const usage = await sandbox.usage();
      expect(usage).toMatchObject({ memoryMaxBytes: 160 * MIB, processMax: 64 });
      expect(usage.memoryBytes).toBeGreaterThan(0);
      expect(usage.processCount).toBeGreaterThan(0);
      expect(usage.cpuMs).toBeGreaterThan(0);

      expect((await sandbox.exec(`${HUNGRY} | cat`)).stderr).toContain("sandlot: out of memory");
      const { sessionId } = await sandbox.sessions.open();
      expect((await sandbox.sessions.exec(sessionId, HUNGRY)).stderr).toContain("sandlot: out of memory");
      const { execId } = await sandbox.spawn(HUNGRY);
      let stderr = "";
      for await (const event of sandbox.execs.follow(execId)) {
        if (event.type === "output" && event.stream === "stderr") stderr += Buffer.from(event.bytes).toString();
        if (event.type === "end") expect(event.end.stderrBytes).toBe(stderr.length);
      }
      expect(stderr).toContain("sandlot: out of memory");

      const big = await sandbox.exec(["dd", "if=/dev/zero", "of=one", "bs=1M", "count=500"]);
      expect(big.stderr).toContain("sandlot: disk_limit_exceeded: the workspace may hold 20971520 bytes");
      // A command that arrives while the excess is being found is stopped for it too.
      const tidied = () => sandbox.exec("rm -f one; sleep 0.3").then(({ exitCode }) => exitCode);
      await expect.poll(tidied).toBe(0);

      // An upload that does not fit gets its own refusal, and others get no report.
      const other = sandbox.exec("sleep 1; echo undisturbed");
      const chunks = async function* () {
        for (let count = 0; count < 30; count += 1) yield Buffer.alloc(MIB);
      };
      await stage.rejects(sandbox.files.upload(`${HERE}/big`, chunks()), "disk_limit_exceeded");
      expect(await other).toMatchObject({ status: "completed", stdout: "undisturbed\n" });
      const failing = async function* () {
        yield Buffer.alloc(MIB);
        throw new Error("the caller's own");
      };
      // The result of the first one counts until the daemon has removed it.
      const problem = () => sandbox.files.upload(`${HERE}/broken`, failing()).catch((error: Error) => error.message);
      await expect.poll(problem).toBe("the caller's own");
      expect((await sandbox.files.list(HERE)).entries).toEqual([]);
    });
  });
});
