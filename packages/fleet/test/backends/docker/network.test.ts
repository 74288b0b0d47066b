/** The network of a container, with its real egress; the tests of `host/egress` cover the policy itself. */

import { expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { networkProblem } from "../../../src/host/egress/index.ts";
import { blueprint, world } from "./docker-harness.ts";
import { describeOnEngine } from "./on-engine.ts";

const ALLOWLIST: Blueprint["network"] = { mode: "allowlist", allow: [{ host: "allowed.example.org", ports: [80] }] };
const REQUEST =
  'exec 3<>/dev/tcp/127.0.0.1/3128; printf "GET http://elsewhere.example.net/ HTTP/1.1\\r\\nHost: elsewhere.example.net\\r\\nConnection: close\\r\\n\\r\\n" >&3; cat <&3';
const INTERFACES = "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '";

describeOnEngine("the network of a container", (onEngine) => {
  it("none has a loopback and nothing else", () =>
    onEngine(async (stage) => {
      const sandbox = await stage.sandbox();
      expect((await sandbox.exec(INTERFACES)).stdout).toBe("lo ");
      expect((await sandbox.exec(["bash", "-c", REQUEST])).stderr).toContain("Connection refused");
    }));

  it("allowlist refuses by name, says why, and its way out ends with the container", {
    timeout: 60_000,
  }, async (context) => {
    const problem = await networkProblem("allowlist", world);
    if (problem !== null) return context.skip(problem);
    await onEngine(async (stage, harness) => {
      const made = await stage.make(stage.newKey(), { blueprint: { ...blueprint, network: ALLOWLIST } });
      const { sandbox } = await stage.attach(made.target);
      expect((await sandbox.exec("echo $http_proxy")).stdout).toContain("127.0.0.1:3128");
      const { stdout } = await sandbox.exec(["bash", "-c", REQUEST]);
      expect(stdout).toContain("403");
      expect(stdout).toContain("elsewhere.example.net");
      expect((await sandbox.exec(INTERFACES)).stdout).toBe("lo ");
      // Another attaching process finds the egress unchanged.
      const peer = await stage.attach(made.target, await harness.peer());
      expect((await peer.sandbox.exec(["bash", "-c", REQUEST])).stdout).toContain("403");
      await harness.kill(made.created.ref);
      await stage.destroy(made);
    });
  });

  it("open has an interface of its own, and no way to the host", { timeout: 60_000 }, async (context) => {
    const problem = await networkProblem("open", world);
    if (problem !== null) return context.skip(problem);
    await onEngine(async (stage) => {
      const open = { ...blueprint, network: { mode: "open", allow: [] } } as const;
      const made = await stage.make(stage.newKey(), { blueprint: open });
      const { sandbox } = await stage.attach(made.target);
      expect((await sandbox.exec(INTERFACES)).stdout).not.toBe("lo ");
      const metadata = await sandbox.exec(["bash", "-c", "timeout 2 bash -c 'exec 3<>/dev/tcp/169.254.169.254/80'"]);
      expect(metadata.exitCode === 0).toBe(false);
    });
  });
});
