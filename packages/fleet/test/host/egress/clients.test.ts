/** The clients that agents use, in a sandbox, through the proxy's own process, by both ways to it. */

import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { NetworkPolicy } from "../../../src/backend/network/policy.ts";
import { OUTSIDE } from "./stage/addresses.ts";
import { proxyDirectory, runInside } from "./stage/inside.ts";
import { NetworkStage, type StagedProxy, stageProblem } from "./stage/stage.ts";

const problem = stageProblem("bwrap", "curl", "git", "openssl", "python3", "npm");
/** Made when the test runs: a key in a file would be found there, wherever the checkout lies. */
const SECRET = `s3cr3t-${randomBytes(9).toString("base64url")}`;
let files: string;
/** Whether Node's own clients read proxy variables when `NODE_USE_ENV_PROXY` says so. */
const READS_VARIABLES = process.allowedNodeEnvironmentFlags.has("--use-env-proxy");
let stage: NetworkStage;

const policy: NetworkPolicy = {
  mode: "allowlist",
  allow: [
    { host: "web.example.com", ports: [80] },
    { host: "api.example.com", ports: [80, 443] },
    { host: "files.example.com", ports: [80, 443] },
  ],
  secrets: [
    {
      name: "api-key",
      host: "api.example.com",
      header: "Authorization",
      prefix: "Bearer ",
      value: SECRET,
      via: "https",
    },
    { name: "web-key", host: "web.example.com", header: "X-Key", value: `web-${SECRET}`, via: "http" },
  ],
};

beforeAll(async () => {
  files = mkdtempSync(join(tmpdir(), "slf-"));
  if (problem === null) stage = await NetworkStage.open(servedFiles());
});
afterAll(async () => {
  await stage?.close();
  rmSync(files, { recursive: true });
});
beforeEach((context) => {
  if (problem !== null) context.skip(problem);
});

/** A git repository as plain files, an index for pip and a registry for npm. */
function servedFiles(): Record<string, string> {
  const git = (...args: string[]): void =>
    void execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@example.com", ...args], {
      cwd: files,
      stdio: "ignore",
    });
  git("init", "-q", "work");
  writeFileSync(join(files, "work", "README"), "from the repository\n");
  git("-C", "work", "add", "README");
  git("-C", "work", "commit", "-q", "-m", "first");
  git("clone", "-q", "--bare", "work", "repository.git");
  git("-C", "repository.git", "update-server-info");
  const served: Record<string, string> = {};
  for (const path of walk(join(files, "repository.git"))) served[`/${relative(files, path)}`] = path;
  writeFileSync(join(files, "simple.html"), '<a href="/simple/thing/thing-1.0.tar.gz">thing-1.0.tar.gz</a>');
  writeFileSync(
    join(files, "thing.json"),
    JSON.stringify({
      name: "thing",
      "dist-tags": { latest: "1.2.3" },
      versions: { "1.2.3": { name: "thing", version: "1.2.3" } },
    }),
  );
  return { ...served, "/simple/thing/": join(files, "simple.html"), "/thing": join(files, "thing.json") };
}

function walk(path: string): string[] {
  return readdirSync(path).flatMap((name) => {
    const child = join(path, name);
    return statSync(child).isDirectory() ? walk(child) : [child];
  });
}

describe.each(["namespace", "socket"] as const)("by the way %s", (way) => {
  let directory: ReturnType<typeof proxyDirectory>;
  let proxy: StagedProxy;

  beforeAll(async () => {
    if (problem !== null) return;
    directory = proxyDirectory();
    proxy = await stage.proxy({
      policy,
      answers: Object.fromEntries(
        ["web.example.com", "api.example.com", "files.example.com"].map((name) => [name, [[OUTSIDE.public]]]),
      ),
      upstreamCa: [stage.outsideAuthority.certificatePem],
      at: { directory: directory.path, sandboxId: "clients", way, account: { uid: 59_998, gid: 59_998 } },
    });
  });
  afterAll(async () => {
    await proxy?.close();
    directory?.remove();
  });

  const inside = (script: string) => runInside(policy, directory.path, script, proxy.started.enter);

  describe("real clients", () => {
    it("curl reaches what is allowed and shows why the rest is refused", async () => {
      const allowed = await inside("curl -sS http://web.example.com/hello");
      expect(JSON.parse(allowed.stdout)).toMatchObject({ url: "/hello" });
      const refused = await inside(
        "curl -sS http://evil.example/; curl -sSv https://evil.example/; curl -sS http://127.0.0.1:3128/",
      );
      expect(refused.stdout).toContain("refused the connection to evil.example:80");
      expect(refused.stderr).toContain("403 Forbidden by Sandlot: evil.example:443 not-allowed");
      expect(refused.stderr).toContain("response 403");
      expect(refused.stdout).toContain("Refused lately");
      await expect.poll(() => proxy.refusals.filter(({ host }) => host === "evil.example").length).toBe(2);
    });

    it("git clones", async () => {
      const { stdout, stderr, code } = await inside(
        "git clone -q http://files.example.com/repository.git here && cat here/README",
      );
      expect([code, stdout, stderr]).toEqual([0, "from the repository\n", ""]);
    });

    it("Python, pip and npm find what they look for", async () => {
      const python = `python3 -c 'import urllib.request as r; print(r.urlopen("http://web.example.com/py").status)'`;
      const refused = `python3 -c 'import urllib.request as r; r.urlopen("https://evil.example/")' 2>&1 | tail -1`;
      const pip =
        "python3 -m pip --disable-pip-version-check index versions thing -i http://files.example.com/simple --trusted-host files.example.com 2>&1 | grep thing";
      const npm = "npm view thing version --registry http://files.example.com/ --cache /tmp/npm";
      const { stdout } = await inside([python, refused, pip, npm].join("\n"));
      const lines = stdout.trim().split("\n");
      expect(lines[0]).toBe("200");
      expect(lines[1]).toContain("Tunnel connection failed: 403 Forbidden by Sandlot: evil.example:443 not-allowed");
      expect(lines.slice(2)).toEqual(expect.arrayContaining([expect.stringContaining("thing (1.0)"), "1.2.3"]));
    });

    it("Node's fetch and http go through the proxy", async () => {
      const script = `
      const viaFetch = await (await fetch("http://web.example.com/fetch")).json();
      const viaHttps = await (await fetch("https://api.example.com/secure")).json();
      console.log(JSON.stringify([viaFetch.url, viaHttps.url]));`;
      const { stdout, stderr } = await inside(`'${process.execPath}' --input-type=module -e '${script}'`);
      if (READS_VARIABLES) expect([stdout, stderr]).toEqual(['["/fetch","/secure"]\n', ""]);
      // An older Node ignores the variables: then it has no connection at all, instead of one around the proxy.
      else expect([stdout, stderr]).toEqual(["", expect.stringContaining("fetch failed")]);
    });

    it("TLS without a secret is the host's own, untouched", async () => {
      const ca = join(files, "outside.pem");
      writeFileSync(ca, stage.outsideAuthority.certificatePem);
      // The sandbox has its own /tmp, so the certificate travels in the script.
      const script = `cat > ca.pem <<'END'\n${readFileSync(ca, "utf8")}END\n`;
      const { stdout, stderr } = await inside(
        `${script}curl -sS --cacert ca.pem https://files.example.com/own && curl -sS https://files.example.com/own`,
      );
      expect(JSON.parse(stdout)).toMatchObject({ url: "/own" });
      expect(stderr).toContain("SSL certificate problem");
    });

    it("loopback inside stays inside", async () => {
      const script =
        "python3 -m http.server 8000 >/dev/null 2>&1 & for i in $(seq 300); do curl -s -o /dev/null http://localhost:8000/ && break; sleep 0.1; done; curl -sS -o /dev/null -w '%{http_code}' http://localhost:8000/";
      expect((await inside(script)).stdout).toBe("200");
    });

    it("no way out besides the proxy", async () => {
      const script = `ip -o link 2>/dev/null | wc -l; curl -sS --noproxy '*' -m 3 http://${OUTSIDE.public}/`;
      const { stdout, stderr } = await inside(script);
      expect(stdout.trim()).toBe("1");
      expect(stderr).toMatch(/Couldn't connect|Network is unreachable|Failed to connect/i);
    });
  });

  describe("bound secrets", () => {
    it("reach their host over TLS, whatever the sandbox sends itself", async () => {
      const { stdout } = await inside(
        "curl -sS -H 'Authorization: Bearer mine' -H 'authorization: too' https://api.example.com/echo-header?name=authorization",
      );
      // The host got the value and echoes it; the response is redacted, byte by byte.
      expect(stdout).toBe(`[Bearer ${"*".repeat(SECRET.length)}]`);
      const hashed = await inside("curl -sS 'https://api.example.com/echo-header?name=authorization&hashed'");
      expect(hashed.stdout).toBe(`[${createHash("sha256").update(`Bearer ${SECRET}`).digest("hex")}]`);
    });

    it("reach their host in the clear where that was asked for, and no other", async () => {
      const { stdout } = await inside(
        ["web", "files"].map((host) => `curl -sS 'http://${host}.example.com/echo-header?name=x-key'; echo`).join("\n"),
      );
      expect(stdout.trim().split("\n")).toEqual([`[${"*".repeat(SECRET.length + 4)}]`, "[none]"]);
    });

    it("do not follow the header to the same host without TLS", async () => {
      const { stdout } = await inside("curl -sS 'http://api.example.com/echo-header?name=authorization'");
      expect(stdout).toBe("[none]");
    });

    it("do not follow another Host header in the tunnel", async () => {
      const { stdout } = await inside(
        "curl -sS -w ' %{http_code}' -H 'Host: files.example.com' https://api.example.com/echo-header?name=authorization",
      );
      expect(stdout).toMatch(/leads to api\.example\.com:443.* 421$/s);
    });

    it("are blacked out in headers too", async () => {
      const { stdout } = await inside("curl -sSi https://api.example.com/echo-header?name=authorization");
      expect(stdout).toContain(`x-echo: Bearer ${"*".repeat(SECRET.length)}`);
    });

    it("work with WebSockets, both ways", async () => {
      // Masked frames, the mask all zeroes: the text "back", then the end.
      const frames = "\\201\\204\\000\\000\\000\\000back\\210\\200\\000\\000\\000\\000";
      const head = [
        "GET /socket HTTP/1.1",
        "Host: api.example.com",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==",
      ];
      const openssl = "openssl s_client -quiet -verify_return_error -CAfile $SSL_CERT_FILE";
      const { stdout } = await inside(
        `(printf '${head.join("\\r\\n")}\\r\\n\\r\\n'; sleep 1; printf '${frames}'; sleep 1) | ${openssl} -proxy 127.0.0.1:3128 -connect api.example.com:443 -servername api.example.com 2>/dev/null`,
      );
      expect(stdout).toMatch(/^HTTP\/1\.1 101 /);
      expect(stdout).toContain(`"authorization":"Bearer ${"*".repeat(SECRET.length)}"`);
      expect(stdout).toMatch(/back/);
    });

    it("are nowhere inside, nor in reports of the host", async () => {
      const search = `grep -rasl '${SECRET.slice(0, 6)}''${SECRET.slice(6)}' /proc/[0-9]*/environ /proc/[0-9]*/cmdline /run /tmp /etc/environment; env | grep -c '${SECRET.slice(0, 6)}''${SECRET.slice(6)}'; ls /run/sandlot/egress; curl -sS http://127.0.0.1:3128/`;
      const { stdout } = await inside(search);
      expect(stdout).toMatch(/^0\n/);
      expect(stdout).toMatch(/ca-bundle\.pem\nca\.pem\n/);
      expect(stdout).toContain("api-key (authorization to https://api.example.com)");
      expect(stdout).not.toContain(SECRET);
      expect(JSON.stringify(proxy.refusals)).not.toContain(SECRET);
      for (const path of walk(directory.path).filter((file) => !statSync(file).isSocket())) {
        expect([path, readFileSync(path, "utf8").includes(SECRET)]).toEqual([path, false]);
      }
    });

    it("have a proxy whose key cannot be read inside, and whose process has no rights", async () => {
      const { stdout } = await inside("grep -rl PRIVATE /run/sandlot; echo searched");
      expect(stdout).toBe("searched\n");
      const { pid } = proxy.started;
      const status = readFileSync(`/proc/${pid}/status`, "utf8");
      expect(status).toMatch(/Uid:\t59998\t59998\t59998\t59998/);
      expect(status).toMatch(/Groups:\t\s*\n/);
      expect(status).toMatch(/CapEff:\t0+\n/);
      expect(readFileSync(`/proc/${pid}/cmdline`, "utf8") + readFileSync(`/proc/${pid}/environ`, "utf8")).not.toContain(
        SECRET,
      );
    });

    it("are not sent to a host that cannot prove its name", async () => {
      const place = proxyDirectory();
      const untrusting = await stage.proxy({
        policy,
        answers: { "api.example.com": [[OUTSIDE.public]] },
        at: { directory: place.path, sandboxId: "untrusting", way },
      });
      const { stdout } = await runInside(
        policy,
        place.path,
        "curl -sS -w ' %{http_code}' https://api.example.com/",
        untrusting.started.enter,
      );
      expect(stdout).toMatch(/TLS with api\.example\.com:443 failed.* 502$/s);
      await untrusting.close();
      place.remove();
    });
  });
});
