import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Fleet, Lease } from "../../../src/fleet.ts";
import { openFleet } from "../../../src/open-fleet.ts";

/** Long and odd enough to be unique to the secret. */
const VALUE = "sk-live-7Qz9vX2mLp4Rt8Wc1Yb6Nd3Hf5Jg0KsE";
const FORMS = [
  VALUE,
  VALUE.slice(8, 28),
  Buffer.from(VALUE).toString("base64").slice(4, 32),
  Buffer.from(VALUE).toString("hex").slice(8, 48),
  [...VALUE].reverse().join(""),
];

/** Attempts of an attacker with a shell. Each may fail in any way; none may print the value. */
const ATTEMPTS: readonly string[] = [
  "env",
  "set",
  "export -p",
  "printenv",
  "cat /proc/self/environ | tr '\\0' '\\n'",
  "cat /proc/1/environ | tr '\\0' '\\n'",
  "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done",
  "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done",
  "ps auxwwwe",
  "ps -ef",
  "for p in /proc/[0-9]*; do cat $p/status $p/stat $p/comm $p/wchan; done",
  "for p in /proc/[0-9]*; do ls -l $p/fd; done",
  "for p in /proc/[0-9]*; do for f in $p/fd/*; do [ -f $f ] && timeout 1 head -c 65536 $f; done; done",
  "for p in /proc/[0-9]*; do timeout 2 strings -n 8 $p/mem; done",
  "for p in /proc/[0-9]*; do cat $p/maps | head -50; done",
  "for p in /proc/[0-9]*; do grep -a sk-live $p/exe; done",
  "for p in /proc/[0-9]*; do cat $p/mountinfo; done",
  "timeout 20 grep -rals sk-live /etc /run /tmp /home /mnt /var /root /dev 2>/dev/null | head",
  "timeout 20 grep -rahs sk-live /etc /run /tmp /home /mnt /var /root 2>/dev/null | head",
  "find / -xdev -newer /etc/passwd -type f -size -64k 2>/dev/null | head -500 | xargs grep -ahs sk-live",
  "cat /run/sandlot/* 2>/dev/null",
  "ls -laR /run 2>/dev/null; cat /run/sandlot/sandboxd.cjs | grep -a sk-live",
  "cat /etc/resolv.conf /etc/hosts /etc/ssl/certs/*sandlot* 2>/dev/null",
  "cat ~/.* 2>/dev/null; ls -la ~",
  "cat /mnt/user-data/.* /mnt/user-data/*/.* 2>/dev/null",
  "curl -s -m 5 http://127.0.0.1:3128/",
  "curl -sv -m 5 http://127.0.0.1:3128/ 2>&1",
  "curl -s -m 5 -x http://127.0.0.1:3128 http://api.example.com/ ; true",
  "curl -sv -m 5 https://api.example.com/ 2>&1",
  "curl -sv -m 5 -k https://api.example.com/ 2>&1",
  "curl -sv -m 5 --proxy-insecure https://api.example.com/ 2>&1",
  "curl -s -m 5 -H 'Authorization: nothing' http://api.example.com/ ; true",
  "curl -s -m 5 -X TRACE http://api.example.com/ ; true",
  "curl -s -m 5 -x http://127.0.0.1:3128 http://127.0.0.1:3128/config; true",
  "printf 'GET / HTTP/1.1\\r\\nHost: api.example.com\\r\\n\\r\\n' | timeout 5 nc 127.0.0.1 3128; true",
  "printf 'CONNECT api.example.com:443 HTTP/1.1\\r\\n\\r\\n' | timeout 5 nc 127.0.0.1 3128; true",
  "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://api.example.com/ HTTP/1.0\\r\\n\\r\\n' >&3; timeout 5 cat <&3",
  "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET /secrets HTTP/1.0\\r\\n\\r\\n' >&3; timeout 5 cat <&3",
  "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'OPTIONS * HTTP/1.0\\r\\n\\r\\n' >&3; timeout 5 cat <&3",
  "openssl s_client -connect 127.0.0.1:3128 </dev/null 2>&1 | head -50",
  "openssl s_client -proxy 127.0.0.1:3128 -connect api.example.com:443 </dev/null 2>&1 | head -80",
  "ss -xlp; ss -tlnp; cat /proc/net/unix /proc/net/tcp /proc/net/tcp6",
  "ls -la /proc/self/ns /proc/1/ns; nsenter -t 1 -a env; true",
  "unshare -Ur env; true",
  "perl -e 'foreach (keys %ENV) { print qq($_=$ENV{$_}\\n) }'",
  "python3 -c 'import os; print(os.environ)'; true",
  "gdb -p 1 -batch -ex 'info proc all' 2>&1 | head -20; true",
  "dd if=/dev/mem bs=1k count=64 2>/dev/null | strings; dd if=/proc/kcore bs=1k count=64 2>/dev/null | strings",
  "dmesg 2>/dev/null; cat /proc/kmsg 2>/dev/null & sleep 0.2; kill $! 2>/dev/null; true",
  "history; cat ~/.bash_history 2>/dev/null; declare -p",
];

const hasBubblewrap = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "bwrap")));

describe.skipIf(!hasBubblewrap)("a bound secret (skipped where bubblewrap is not installed)", () => {
  const home = mkdtempSync(join(tmpdir(), "slb-"));
  let fleet: Fleet;
  let lease: Lease;

  beforeAll(async () => {
    const secret = { name: "api", host: "api.example.com", header: "Authorization", prefix: "Bearer ", value: VALUE };
    const allow = [{ host: "api.example.com", ports: [80, 443] }];
    const network = { mode: "allowlist", allow, secrets: [secret] } as const;
    fleet = await openFleet({ home, backend: "local", blueprints: { default: { network } } });
    lease = await fleet.acquire({ thread: "secretive" });
  }, 60_000);

  afterAll(async () => {
    await lease?.release();
    await fleet?.destroy({ thread: "secretive" }, { purge: true, force: true });
    await fleet?.close({ destroy: true });
    rmSync(home, { recursive: true, force: true });
  }, 60_000);

  it("there are fifty attempts", () => {
    expect(new Set(ATTEMPTS).size).toBe(50);
  });

  it.each(ATTEMPTS)(
    "is not found by: %s",
    async (attempt) => {
      const { stdout, stderr } = await lease.sandbox.exec(["bash", "-c", attempt], { timeoutMs: 40_000 });
      for (const form of FORMS) expect(`${stdout}\n${stderr}`).not.toContain(form);
    },
    60_000,
  );

  it("would be found by the first ones if it were in the environment of a command", async () => {
    for (const attempt of ATTEMPTS.slice(0, 7)) {
      const { stdout } = await lease.sandbox.exec(["bash", "-c", attempt], { env: { API_KEY: VALUE } });
      if (!attempt.includes("/proc/1/")) expect(stdout).toContain(VALUE);
    }
  }, 60_000);

  it("a refusal is an event that names the sandbox", async () => {
    const heard = new Promise((resolve) => fleet.events.on(resolve, "egress-refused"));
    const { stdout } = await lease.sandbox.exec("curl -s -m 10 http://elsewhere.example.org/");
    expect(stdout).toContain("elsewhere.example.org");
    expect(await heard).toMatchObject({ host: "elsewhere.example.org", port: 80, thread: "secretive" });
  }, 60_000);
});
