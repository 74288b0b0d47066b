/**
 * Egress: what a sandbox may reach, and how this is enforced.
 *
 *   policy.ts          what configuration says, checked: `none`, `allowlist`, `open`, rules, secrets
 *   rules/             decides what may be reached, by name, then by address; and the text of a refusal
 *   proxy/             the HTTP proxy: forwarding, tunnels, TLS that ends here where a secret is bound
 *   certificates/      the authority that one sandbox trusts
 *   namespace/         a sandbox's network namespace, from outside
 *   open/              the transport of `open`: slirp4netns behind routes
 *   sandbox-side/      what the sandbox gets: variables, mounts, the forwarder
 *   registries/        where this machine's package tools read, for `network.registries`
 *   process/           the process that runs all this: one per sandbox, outliving the fleet
 *
 * How a backend uses it
 *
 *   const egress = await startEgress({ sandboxId, policy, directory, way: "namespace", account, world, onRefused });
 *   // Start the sandbox as [...egress.enter, "bwrap", "--share-net", …]: it keeps the network that it finds there.
 *   //   egress.network.environment   for the daemon's `environment`
 *   //   egress.network.mounts        read-only; `/etc/resolv.conf` is among them in `open` mode
 *   egress.watch(identityOfTheSandboxsFirstProcess);   // the egress process ends with the sandbox
 *   …
 *   await egress.stop();                               // on destroy, or `stopEgress({ directory, world })`
 *
 * - `none` needs none of this: its network namespace is empty.
 * - `directory` is the sandbox's own, outside every mount, with a path of at most 70 bytes.
 * - To attach to a sandbox, call `startEgress` with the same options: it joins the running process, or starts another
 *   one if that was killed. For a running sandbox, `namespace: { pid }` names a process in its network namespace (for
 *   an ordinary user's fleet: the outer bwrap, which is in the user namespace around it). `egress.closed` resolves when
 *   the process has ended.
 * - A sandbox whose namespace cannot be entered (a remote engine, or one that this user has no rights over) takes `way:
 *   "socket"`: `network.mounts` then holds the proxy's directory, and `network.forwarder` the program to run inside.
 *   `open` is unsupported there.
 * - `networkProblem` says what this machine does not support: the capability is then not declared.
 */

export { networkProblem } from "./network-problem.ts";
export type { Egress } from "./process/connection.ts";
export { startEgress, stopEgress } from "./process/start-egress.ts";
export { thisMachine } from "./registries/machine.ts";
export { type RegistryLine, resolveRegistries } from "./registries/resolve.ts";
export type { Refusal } from "./rules/decide.ts";
