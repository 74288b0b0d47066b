/**
 * Ends the sandboxes of a fleet whose gateways are gone, and takes their finalizers off: what `helm uninstall` runs.
 *
 *   wait until no gateway is left ─▶ delete every sandbox ─▶ wait until nothing of it runs ─▶ take the finalizer off
 *
 * A pod whose containers have not ended keeps its finalizer, and the program fails: its files may still be written to.
 * Its node is lost, then; `kubectl get pods` shows it.
 */
import { readFileSync } from "node:fs";
import { request } from "node:https";

const ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";
const FINALIZER = "sandlot.dev/proof";
const { FLEET_ID = "", INSTANCE = "", KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT } = process.env;
const [ca, namespace] = ["ca.crt", "namespace"].map((name) => readFileSync(`${ACCOUNT}/${name}`, "utf8"));
const PODS = `/api/v1/namespaces/${namespace}/pods`;
const LOOK_EVERY_MS = 1_000;
const GATEWAYS_MS = 150_000;
const SANDBOXES_MS = 60_000;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function ask(method, path, body) {
  return new Promise((resolve, reject) => {
    const text = body && JSON.stringify(body);
    const headers = {
      authorization: `Bearer ${readFileSync(`${ACCOUNT}/token`, "utf8")}`,
      ...(text && {
        "content-type": method === "PATCH" ? "application/json-patch+json" : "application/json",
        // Node sends a DELETE without it, and the next request of the connection would begin with the rest.
        "content-length": Buffer.byteLength(text),
      }),
    };
    const where = { host: KUBERNETES_SERVICE_HOST, port: KUBERNETES_SERVICE_PORT, ca, method, path, headers };
    const asked = request({ ...where, timeout: 10_000 }, (response) => {
      let answer = "";
      response.setEncoding("utf8");
      response.on("data", (part) => (answer += part));
      response.on("end", () => {
        const status = response.statusCode ?? 0;
        if (status < 300) resolve(JSON.parse(answer));
        else if (status === 404) resolve(null);
        else reject(new Error(`${method} ${path}: ${status} ${answer.slice(0, 300)}`));
      });
    });
    asked.on("timeout", () => asked.destroy(new Error(`${method} ${path}: no answer`)));
    asked.on("error", reject);
    asked.end(text);
  });
}

const listed = async (selector) => (await ask("GET", `${PODS}?labelSelector=${encodeURIComponent(selector)}`)).items;

/** The kubelet's word: every container of the pod has ended; or the pod never had a node. */
function hasEnded({ metadata, spec, status }) {
  if (metadata.deletionTimestamp === undefined) return false;
  if (spec.nodeName === undefined) return true;
  if (status.phase !== "Failed" && status.phase !== "Succeeded") return false;
  const told = new Map(
    [
      ...(status.initContainerStatuses ?? []),
      ...(status.containerStatuses ?? []),
      ...(status.ephemeralContainerStatuses ?? []),
    ].map(({ name, state }) => [name, state]),
  );
  const all = [...(spec.initContainers ?? []), ...spec.containers, ...(spec.ephemeralContainers ?? [])];
  return all.every(({ name }) => told.get(name)?.terminated !== undefined);
}

async function takeOff({ metadata }) {
  const at = (metadata.finalizers ?? []).indexOf(FINALIZER);
  if (at < 0) return;
  const path = `/metadata/finalizers/${at}`;
  await ask("PATCH", `${PODS}/${metadata.name}`, [
    { op: "test", path: "/metadata/uid", value: metadata.uid },
    { op: "test", path, value: FINALIZER },
    { op: "remove", path },
  ]);
}

async function until(timeoutMs, work) {
  for (let waitedMs = 0; ; waitedMs += LOOK_EVERY_MS) {
    const left = await work();
    if (left === 0) return 0;
    if (waitedMs >= timeoutMs) return left;
    await sleep(LOOK_EVERY_MS);
  }
}

const ours = `app.kubernetes.io/instance=${INSTANCE},sandlot.dev/role=gateway`;
const gateways = await until(GATEWAYS_MS, async () => (await listed(ours)).length);
if (gateways > 0) throw new Error(`${gateways} gateways still run`);
const sandboxes = `sandlot.dev/fleet=${FLEET_ID},sandlot.dev/role=sandbox`;
const left = await until(SANDBOXES_MS, async () => {
  const pods = await listed(sandboxes);
  for (const pod of pods) {
    const { name, uid, deletionTimestamp } = pod.metadata;
    if (hasEnded(pod)) await takeOff(pod);
    else if (deletionTimestamp === undefined)
      await ask("DELETE", `${PODS}/${name}`, { gracePeriodSeconds: 2, preconditions: { uid } });
  }
  return pods.length;
});
if (left > 0) throw new Error(`${left} sandboxes have not ended; their nodes may be lost`);
for (const { metadata } of await listed(`sandlot.dev/trial=${FLEET_ID}`))
  await ask("DELETE", `${PODS}/${metadata.name}`, { gracePeriodSeconds: 0, preconditions: { uid: metadata.uid } });
await ask("DELETE", `/api/v1/namespaces/${namespace}/configmaps/sandlot-fleet-${FLEET_ID}`);
await ask("DELETE", `/api/v1/namespaces/${namespace}/secrets/sandlot-key-${FLEET_ID}`);
console.log("every sandbox has ended");
