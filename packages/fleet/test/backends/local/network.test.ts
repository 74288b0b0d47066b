/** The network of a local sandbox, with its real egress; the tests of `host/egress` cover the policy itself. */

import { afterAll, expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { networkProblem } from "../../../src/host/egress/index.ts";
import { blueprint, initOf, onStage, removeDaemon, world } from "./local-harness.ts";

afterAll(removeDaemon);

const ALLOWLIST: Blueprint["network"] = { mode: "allowlist", allow: [{ host: "allowed.example.org", ports: [80] }] };
const REQUEST =
  'exec 3<>/dev/tcp/127.0.0.1/3128; printf "GET http://elsewhere.example.net/ HTTP/1.1\\r\\nHost: elsewhere.example.net\\r\\nConnection: close\\r\\n\\r\\n" >&3; cat <&3';

it("none has a loopback and nothing else", () =>
  onStage(async (stage) => {
    const sandbox = await stage.sandbox();
    expect((await sandbox.exec("cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '")).stdout).toBe("lo\n");
    expect((await sandbox.exec("cat /proc/net/route | wc -l")).stdout.trim()).toBe("1");
    expect((await sandbox.exec(["bash", "-c", REQUEST])).stderr).toContain("Connection refused");
  }));

it("allowlist refuses by name, says why, and its way out ends with the sandbox", {
  timeout: 60_000,
}, async (context) => {
  const problem = await networkProblem("allowlist", world);
  if (problem !== null) return context.skip(problem);
  await onStage(async (stage, harness) => {
    const made = await stage.make(stage.newKey(), { blueprint: { ...blueprint, network: ALLOWLIST } });
    const { sandbox } = await stage.attach(made.target);
    expect((await sandbox.exec("echo $http_proxy")).stdout).toContain("127.0.0.1:3128");
    const { stdout } = await sandbox.exec(["bash", "-c", REQUEST]);
    expect(stdout).toContain("403");
    expect(stdout).toContain("elsewhere.example.net");
    expect((await sandbox.exec("cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '")).stdout).toBe("lo\n");
    // Another attaching process finds the egress unchanged.
    const peer = await harness.peer();
    expect((await (await stage.attach(made.target, peer)).sandbox.exec(["bash", "-c", REQUEST])).stdout).toContain(
      "403",
    );
    process.kill(initOf(made.created.ref), "SIGKILL");
    await stage.destroy(made);
  });
});
