/**
 * The programs of trials, for the daemon's Node in pods of the cluster. They use nothing but Node, and its own clock.
 *
 *   claim          runs the commands that it finds on a volume
 *   gateway side   no policy; connects to the sandbox sides, as gateways do, and tells each what to try
 *   sandbox side   the policy `none`; tries everything but its own node until it is refused three times in a row, or until the time is up: on
 *                  a busy machine one silence is no refusal
 */

const TRY = `
const net = require("node:net");
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const reaches = ({ host, port }) => new Promise((resolve) => {
  const socket = net.connect({ host, port });
  const late = setTimeout(() => end(false), 1000);
  const end = (isReached) => { clearTimeout(late); socket.destroy(); resolve(isReached); };
  socket.once("connect", () => end(true));
  socket.on("error", () => end(false));
});
const PORT = Number(process.env.PORT);
`;

export const SANDBOX_PROGRAM = `${TRY}
const stays = async (target, until) => {
  for (let refused = 0; ;) {
    refused = (await reaches(target)) ? 0 : refused + 1;
    if (refused >= 3) return false;
    if (refused === 0 && Date.now() > until) return true;
    await sleep(100);
  }
};
const tryAll = async ({ targets, services, ports, settleMs }) => {
  const startedAt = Date.now();
  const stay = async (all) => {
    const found = await Promise.all(all.map((one) => stays(one, startedAt + settleMs)));
    return all.filter((_, index) => found[index]);
  };
  const host = process.env.NODE_IP;
  const [reached, serviced] = await Promise.all([stay(targets.filter((one) => one.host !== host)), stay(services)]);
  const tookMs = Date.now() - startedAt;
  // A slow answer is an answer: an open port counts as closed after three silences only.
  const open = await Promise.all(ports.map((port) => stays({ host, port }, 0)));
  return { reached, services: serviced, node: { host, ports: ports.filter((_, index) => open[index]) }, tookMs };
};
net.createServer((socket) => socket.on("error", () => {}).destroy()).listen(PORT + 1);
net.createServer((socket) => {
  let text = "";
  socket.on("error", () => {});
  socket.on("data", (part) => {
    text += part;
    if (text.endsWith("\\n")) tryAll(JSON.parse(text)).then((found) => socket.end(JSON.stringify(found)));
  });
}).listen(PORT);
`;

export const GATEWAY_PROGRAM = `${TRY}
const { readFileSync, writeFileSync } = require("node:fs");
const { networkInterfaces } = require("node:os");
const wish = JSON.parse(process.env.WISH);
const tell = (found) => { writeFileSync("/dev/termination-log", JSON.stringify(found)); process.exit(0); };
const sandboxes = process.env.SANDBOX_IPS.split(",");
const wishOf = (own) => {
  const others = sandboxes.filter((host) => host !== own).flatMap((host) => wish.sandboxPorts.map((port) => ({ name: "another sandbox", host, port })));
  return { ...wish, targets: [...wish.targets, ...others] };
};
const ask = (own) => new Promise((resolve, reject) => {
  const socket = net.connect({ host: own, port: PORT }, () => socket.write(JSON.stringify(wishOf(own)) + "\\n"));
  let text = "";
  socket.setTimeout(30000, () => socket.destroy(new Error("no answer")));
  socket.on("error", reject);
  socket.on("data", (part) => (text += part));
  socket.on("end", () => { try { resolve(JSON.parse(text)); } catch (error) { reject(error); } });
});
const within = async (ms, work) => {
  const until = Date.now() + ms;
  for (;;) {
    const found = await work();
    if (found || Date.now() > until) return found;
    await sleep(200);
  }
};
const main = async () => {
  for (const { address, internal } of Object.values(networkInterfaces()).flat())
    if (!internal && !/^fe80/i.test(address)) wish.targets.push({ name: "a pod of a gateway", host: address, port: PORT });
  for (const [, host] of readFileSync("/etc/resolv.conf", "utf8").matchAll(/^nameserver\\s+(\\S+)/gm))
    wish.services.push({ name: "the cluster's name server", host, port: 53 });
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = process.env;
  if (host) wish.services.push({ name: "the API server", host, port: Number(port) });
  const isCanaryUp = wish.canary === null || (await within(wish.canaryMs, () => reaches(wish.canary)));
  let problem = "";
  const asked = (own) => within(20000, () => ask(own).catch((error) => { problem = error.message; return null; }));
  const found = await Promise.all(sandboxes.map(asked));
  tell(found.includes(null) ? { isConnected: false, isCanaryUp, problem } : { isConnected: true, isCanaryUp, found });
};
net.createServer((socket) => socket.on("error", () => {}).destroy()).listen(PORT, main);
`;

/** A directory is read anew for each look: a client that remembers that a name is missing would not find it. */
export const CLAIM_PROGRAM = `
const { existsSync, readdirSync, readFileSync, renameSync, writeFileSync } = require("node:fs");
const { spawnSync } = require("node:child_process");
const folder = process.env.FOLDER;
const done = new Set();
setInterval(() => {
  for (const name of existsSync(folder) ? readdirSync(folder) : []) {
    if (!name.endsWith(".in") || done.has(name)) continue;
    const command = readFileSync(folder + "/" + name, "utf8");
    // The name comes before the content.
    if (!command.endsWith("\\n#\\n")) continue;
    done.add(name);
    const { status, stdout, stderr } = spawnSync("/bin/sh", ["-c", command], { encoding: "utf8", timeout: 20000 });
    const out = folder + "/" + name.replace(/in$/, "out");
    writeFileSync(out + ".new", JSON.stringify({ exitCode: status ?? 1, stdout, stderr }));
    renameSync(out + ".new", out);
  }
}, 20);
`;
