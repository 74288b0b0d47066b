/**
 * Runs in a network namespace of its own: a company's package index and its forge, and the commands of a guide one after
 * the other. It prints what each command printed, as one JSON document.
 */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createAuthority, issueCertificate } from "../../../src/host/egress/certificates/authority.ts";
import { runHere } from "../../cli/run-here.ts";
import { serveGit } from "./git-backend.ts";
import { PASSWORD } from "./loopback-registries.ts";

const PACKAGES = "packages.corp.example";
const FORGE = "git.corp.example";
const { yaml, requirements, commands } = JSON.parse(process.argv[2] ?? "{}") as {
  yaml: string;
  requirements: string;
  commands: readonly (readonly string[])[];
};

const directory = mkdtempSync(join(tmpdir(), "slg-"));
const [account, home, wheels] = ["account", "home", "wheels"].map((name) => join(directory, name)) as [
  string,
  string,
  string,
];
for (const path of [account, home, wheels]) mkdirSync(path, { mode: 0o700 });
const authority = createAuthority([PACKAGES, FORGE], Date.now());
const authorityFile = join(directory, "authority.pem");
writeFileSync(authorityFile, authority.certificatePem);
const keys = issueCertificate(authority, PACKAGES, Date.now(), [PACKAGES, FORGE]);

// As small as a package can be that does what the guide's command asks of it.
const PNG = `import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
points = []
def plot(x, y):
    points.extend(zip(x, y))
def savefig(path):
    rows = b"".join(b"\\0" + bytes(255 if at == row else 0 for at in range(8)) for row in range(8))
    with open(path, "wb") as made:
        made.write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)))
        made.write(chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
`;
const TABLE = `import csv
from matplotlib import pyplot
class DataFrame:
    def __init__(self, rows):
        self.rows = rows
    def plot(self, x, y):
        pyplot.plot([float(row[x]) for row in self.rows], [float(row[y]) for row in self.rows])
def read_csv(path):
    with open(path) as file:
        return DataFrame(list(csv.DictReader(file)))
`;
const WHEEL = `import json, sys, zipfile
path, name, files = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
info = f"{name}-1.0.dist-info"
files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n"
files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
files[f"{info}/RECORD"] = ""
with zipfile.ZipFile(f"{path}/{name}-1.0-py3-none-any.whl", "w") as made:
    for name, text in files.items():
        made.writestr(name, text)
`;
for (const [name, files] of Object.entries({
  pandas: { "pandas/__init__.py": TABLE },
  matplotlib: { "matplotlib/__init__.py": "", "matplotlib/pyplot.py": PNG },
}))
  execFileSync("python3", ["-c", WHEEL, wheels, name, JSON.stringify(files)]);

const repositories = join(directory, "repositories");
const [bare, first] = [join(repositories, "team", "private.git"), join(directory, "first")];
const git = (...args: readonly string[]) => execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@b", ...args]);
git("init", "-q", "--bare", "-b", "main", bare);
git("-C", bare, "config", "http.receivepack", "true");
git("init", "-q", "-b", "main", first);
git("-C", first, "commit", "-q", "--allow-empty", "-m", "first");
git("-C", first, "push", "-q", bare, "main");

const server = createServer({ cert: keys.certificatePem, key: keys.keyPem }, (request, response) => {
  const [host, path = ""] = [request.headers.host, request.url];
  const right = `Basic ${Buffer.from(`agent:${PASSWORD}`).toString("base64")}`;
  if (host === FORGE && request.headers.authorization === right) return serveGit(repositories, request, response);
  const [, project = "", file = ""] = path.split("/simple")[1]?.split("/") ?? [];
  if (host !== PACKAGES || !path.startsWith("/simple/")) return void response.writeHead(401).end();
  if (file !== "") return void response.end(readFileSync(join(wheels, file)));
  const wheel = `${project}-1.0-py3-none-any.whl`;
  const link = project === "" ? '<a href="pandas/">pandas</a>' : `<a href="${wheel}">${wheel}</a>`;
  response.writeHead(200, { "content-type": "text/html" }).end(`<!DOCTYPE html><html><body>${link}</body></html>`);
});
await new Promise<void>((resolve) => server.listen(443, "0.0.0.0", resolve));

// Only this namespace sees it.
execFileSync("mount", ["-t", "tmpfs", "none", "/srv"]);
mkdirSync("/srv/science");
writeFileSync("/srv/science/requirements.txt", requirements);
mkdirSync(join(account, ".config", "pip"), { recursive: true });
const index = `[global]\nindex-url = https://${PACKAGES}/simple\ncert = ${authorityFile}\n`;
writeFileSync(join(account, ".config", "pip", "pip.conf"), index);
writeFileSync(join(home, "sandlot.yaml"), yaml);
for (const name of Object.keys(process.env)) if (/^PIP_/i.test(name)) delete process.env[name];
const environment = {
  ...{ HOME: account, SANDLOT_HOME: home, FORGE_TOKEN: PASSWORD, NODE_EXTRA_CA_CERTS: authorityFile },
};
Object.assign(process.env, environment);
process.chdir(account);

const results: { code: number | null; stdout: string; stderr: string }[] = [];
for (const command of commands) results.push(await runHere(command, environment));
const plot = (() => {
  try {
    return readFileSync(join(account, "sales.png")).subarray(1, 4).toString();
  } catch {
    return null;
  }
})();
for (const thread of ["report", "fix"]) await runHere(["rm", "-t", thread, "--force", "--purge"], environment);
server.close();
process.chdir("/");
execFileSync("umount", ["/srv"]);
rmSync(directory, { recursive: true, force: true });
process.stdout.write(`${JSON.stringify({ results, plot })}\n`);
process.exit(0);
