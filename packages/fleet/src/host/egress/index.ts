/**
 * What a sandbox may reach, and how that is kept.
 *
 *   policy.ts          what configuration says, checked: `none`, `allowlist`, `open`, rules, secrets
 *   rules/             may this be reached? by name, then by address; and a refusal in words
 *   proxy/             the HTTP proxy: forwarding, tunnels, TLS that ends here where a secret is bound
 *   certificates/      the authority that one sandbox trusts
 *   namespace/         a sandbox's network namespace, from outside
 *   open/              what carries `open`: slirp4netns behind routes
 *   sandbox-side/      what the sandbox gets: variables, mounts, the forwarder
 *   process/           the process that all this runs in: one per sandbox, outliving the fleet
 *
 * How a backend uses it
 *
 *   const egress = await startEgress({ sandboxId, policy, directory, way: "namespace", account, world, onRefused });
 *   // Start the sandbox as [...egress.enter, "bwrap", "--share-net", …]: it keeps the network that it finds there.
 *   //   egress.network.environment   for the daemon's `environment`
 *   //   egress.network.mounts        read-only; `/etc/resolv.conf` is among them in `open` mode
 *   egress.watch(identityOfTheSandboxsFirstProcess);   // it ends with the sandbox, whoever else has ended
 *   …
 *   await egress.stop();                               // on destroy, or `stopEgress({ directory, world })`
 *
 * - `none` needs nothing of this: a network namespace with nothing in it.
 * - `directory` is the sandbox's own, outside every mount, with a path of at most 70 bytes.
 * - Whoever attaches to a sandbox calls `startEgress` with the same options: it joins the process that runs, and starts
 *   another one where it was killed. For a sandbox that runs, `namespace: { pid }` names a process in its network namespace
 *   (for an ordinary user's fleet: the outer bwrap, which is in the user namespace around it). `egress.closed` tells when
 *   the process has ended.
 * - A sandbox whose namespace cannot be entered (an engine elsewhere, or one that this user has no rights over) takes
 *   `way: "socket"`: `network.mounts` then holds the proxy's directory, and `network.forwarder` what to run inside.
 *   `open` cannot be had that way.
 * - `networkProblem` says what cannot be had on this machine: the capability is then not declared.
 */

export { networkProblem } from "./network-problem.ts";
export type { Egress } from "./process/connection.ts";
export { startEgress, stopEgress } from "./process/start-egress.ts";
export type { Refusal } from "./rules/decide.ts";
