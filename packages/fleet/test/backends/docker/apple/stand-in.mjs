/**
 * Stands in for Apple's `container` program, on Linux: records every command, prints output in the program's format,
 * and really runs what is started, by bubblewrap with the requested mounts. A published socket appears outside once it
 * exists inside.
 *
 *   STAND_IN_PLACE=<directory> node stand-in.mjs <arguments>
 *
 * Imports nothing of Sandlot: it is written from the program's documentation alone.
 */
import { spawn } from "node:child_process";
import {
  appendFileSync,
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

const PLACE = process.env.STAND_IN_PLACE ?? "";
const args = process.argv.slice(2);
appendFileSync(join(PLACE, "commands.jsonl"), `${JSON.stringify(args)}\n`);

/** Options without a value; every other option is followed by its value. */
const FLAGS = new Set(["--no-dns", "--read-only", "--all", "--force"]);
const ARCHITECTURE = process.arch === "x64" ? "amd64" : process.arch;

function parse(words) {
  const options = {};
  let at = 0;
  for (; at < words.length && words[at].startsWith("-"); at++) {
    const name = words[at];
    options[name] = [...(options[name] ?? []), FLAGS.has(name) ? "" : words[++at]];
  }
  return { options, rest: words.slice(at) };
}

function print(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

function fail(message) {
  process.stderr.write(`Error: ${message}\n`);
  process.exit(1);
}

const directory = (id) => join(PLACE, "containers", id);
const read = (id) => JSON.parse(readFileSync(join(directory(id), "container.json"), "utf8"));
const write = (id, container) => writeFileSync(join(directory(id), "container.json"), JSON.stringify(container));
const notFound = (what, id) =>
  fail(`internalError: "failed to ${what} container" (cause: "notFound: "container with ID ${id} not found"")`);

function runs(pid) {
  try {
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

function create({ options, rest: [image, ...command] }) {
  const [id = ""] = options["--name"] ?? [];
  if (existsSync(directory(id))) fail(`exists: "container already exists: ${id}"`);
  mkdirSync(join(directory(id), "tmp"), { recursive: true });
  chmodSync(join(directory(id), "tmp"), 0o1777);
  write(id, { id, image, command, options, pid: null });
  print(id);
}

function start(id) {
  if (!existsSync(directory(id))) notFound("start", id);
  const container = read(id);
  const { options, command } = container;
  const volumes = (options["--volume"] ?? []).flatMap((volume) => {
    const [from, to, readOnly] = volume.split(":");
    return [readOnly === "ro" ? "--ro-bind" : "--bind", from, to];
  });
  const tmpfs = (options["--mount"] ?? []).flatMap((mount) => ["--tmpfs", /destination=([^,]+)/.exec(mount)?.[1]]);
  const modes = tmpfs.filter((word) => word !== "--tmpfs").flatMap((path) => ["--chmod", "1777", path]);
  const [uid, gid] = options["--user"][0].split(":");
  const log = openSync(join(directory(id), "log"), "a");
  const child = spawn(
    "bwrap",
    [
      ...["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run", "--tmpfs", "/home"],
      ...["--bind", join(directory(id), "tmp"), "/tmp", ...tmpfs, ...modes, ...volumes],
      ...[
        "--unshare-net",
        "--unshare-pid",
        "--unshare-ipc",
        "--as-pid-1",
        "--cap-add",
        "CAP_SETUID",
        "--cap-add",
        "CAP_SETGID",
      ],
      ...["--chdir", options["--workdir"][0], "--clearenv", "--setenv", "PATH", process.env.PATH ?? ""],
      ...(options["--env"] ?? []).flatMap((entry) => ["--setenv", ...entry.split("=", 2)]),
      ...["setpriv", "--reuid", uid, "--regid", gid, "--clear-groups", "--bounding-set=-all"],
      ...[options["--entrypoint"][0], ...command],
    ],
    { stdio: ["ignore", log, log], detached: true },
  );
  closeSync(log);
  child.unref();
  write(id, { ...container, pid: child.pid });
  relay(id, options["--publish-socket"] ?? []);
  print(id);
}

/** The socket is created inside a little later; a separate process waits for it while the container exists. */
function relay(id, published) {
  for (const spec of published) {
    const [outside, inside] = spec.split(":");
    const made = join(directory(id), "tmp", inside.replace(/^\/tmp\//, ""));
    const script = 'while [ -d "$2" ]; do [ -S "$0" ] && exec ln "$0" "$1"; sleep 0.02; done';
    spawn("/bin/sh", ["-c", script, made, outside, directory(id)], { stdio: "ignore", detached: true }).unref();
  }
}

function list() {
  const ids = existsSync(join(PLACE, "containers")) ? readdirSync(join(PLACE, "containers")) : [];
  print(
    ids.flatMap((id) => {
      if (!existsSync(join(directory(id), "container.json"))) return [];
      const { image, options, pid } = read(id);
      const labels = Object.fromEntries((options["--label"] ?? []).map((label) => label.split("=", 2)));
      const state = pid !== null && runs(pid) ? "running" : "stopped";
      const platform = { os: "linux", architecture: ARCHITECTURE };
      const configuration = { id, labels, image: { reference: image }, platform, networks: [], readOnly: false };
      return [{ id, configuration, status: { state, networks: [] } }];
    }),
  );
}

async function remove({ rest: [id = ""] }) {
  if (!existsSync(directory(id))) notFound("delete", id);
  const { pid } = read(id);
  if (pid !== null && runs(pid)) process.kill(-pid, "SIGKILL");
  while (pid !== null && runs(pid)) await new Promise((resolve) => setTimeout(resolve, 5));
  rmSync(directory(id), { recursive: true, force: true });
  print(id);
}

function logs({ options, rest: [id = ""] }) {
  if (!existsSync(directory(id))) notFound("get logs for", id);
  const lines = readFileSync(join(directory(id), "log"), "utf8")
    .trim()
    .split("\n");
  process.stdout.write(`${lines.slice(-Number(options["-n"]?.[0] ?? lines.length)).join("\n")}\n`);
}

const answers = JSON.parse(readFileSync(join(PLACE, "answers.json"), "utf8"));

function image([verb, ...rest]) {
  const name = rest.at(-1) ?? "";
  const isThere = answers.images.includes(name);
  if (verb === "pull") {
    if (name.includes("no-such")) fail(`notFound: "image ${name} not found in its registry"`);
    if (!isThere)
      writeFileSync(join(PLACE, "answers.json"), JSON.stringify({ ...answers, images: [...answers.images, name] }));
    return;
  }
  if (!isThere) fail(`notFound: "image ${name} not found"`);
  const config = { os: "linux", architecture: ARCHITECTURE, config: { Env: ["LANG=C.UTF-8"], Cmd: ["/bin/bash"] } };
  const variants = [{ platform: { os: "linux", architecture: ARCHITECTURE }, size: 365_000_000, config }];
  print([{ id: "sha256:0123", name, configuration: { reference: name }, index: { digest: "sha256:0123" }, variants }]);
}

const [verb, ...rest] = args;
if (verb === "system") print(answers.status);
else if (verb === "create") create(parse(rest));
else if (verb === "start") start(rest[0]);
else if (verb === "list") list();
else if (verb === "delete") await remove(parse(rest));
else if (verb === "logs") logs(parse(rest));
else if (verb === "image") image(rest);
else fail(`unknown command ${verb}`);
