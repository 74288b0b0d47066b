/**
 * The checks of `sandlot doctor` for the local backend: whether sandboxes can be made here, how they are isolated, and
 * how each limit is enforced. The doctor makes a trial sandbox and removes it.
 */

import { execFile } from "node:child_process";
import { accessSync, constants, existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { isSandlotError } from "@sandlot/contract";
import type { Finding } from "../../backend/doctor/finding.ts";
import { closedDaemonFinding } from "../../backend/doctor/isolation-findings.ts";
import { sharingProblem } from "../../host/accounts/index.ts";
import { describeDisk } from "../../host/limits/describe.ts";
import { type Enforcement, openLimits, ProjectQuotas } from "../../host/limits/index.ts";
import { lookForQuotas } from "../../host/limits/quota/trial.ts";
import { closingProblem } from "../../host/runtime/runtime-directory.ts";
import { systemWorld } from "../../world/system-world.ts";
import { type BubblewrapFeatures, bubblewrapFeatures } from "./bubblewrap/features.ts";
import { procArguments, systemArguments } from "./bubblewrap/system-files.ts";
import { explainStart, StartProblem } from "./engine/start-problem.ts";
import { FILTER_ARCHITECTURES } from "./seccomp/index.ts";
import { type ConfiguredSettings, type LocalSettings, localSettings } from "./settings.ts";

const run = promisify(execFile);
const TRIAL_TIMEOUT_MS = 10_000;
/** Small programs of every distribution that a start uses. */
const TOOLS = ["/usr/bin/mkfifo", "/usr/bin/setpriv", "/usr/bin/unshare", "/usr/bin/mount", "/bin/sh"];

export async function localFindings(configured: ConfiguredSettings): Promise<readonly Finding[]> {
  if (configured.local.isolation !== "bubblewrap") return [unsafeFinding()];
  if (process.platform !== "linux") return [platformFinding()];
  const settings = localSettings(configured);
  return [
    ...(await bubblewrapFindings(settings)),
    accountFinding(settings),
    filterFinding(),
    toolsFinding(),
    daemonFinding(settings),
    closedDaemonFinding(closingProblem()),
    lateBindingFinding(settings),
    ...limitFindings(settings),
    await diskFinding(settings),
  ];
}

function unsafeFinding(): Finding {
  const detail = "commands run as plain processes of this account (unsafe-process): this is no security boundary";
  return { name: "isolation", status: "warn", detail, fix: "set local.isolation to bubblewrap on Linux" };
}

function platformFinding(): Finding {
  const detail = `bubblewrap needs Linux; this is ${process.platform}`;
  const fix = "use the docker backend, or, for code that you trust, local.isolation: unsafe-process";
  return { name: "isolation", status: "fail", detail, fix };
}

async function bubblewrapFindings(settings: LocalSettings): Promise<readonly Finding[]> {
  try {
    const features = await bubblewrapFeatures(settings.bubblewrapPath);
    return [versionFinding(features), await trialFinding(settings, features)];
  } catch (error) {
    return [failed("bubblewrap", error)];
  }
}

function versionFinding({ version, disableUserNamespaces, size }: BubblewrapFeatures): Finding {
  const missing = [
    ...(disableUserNamespaces ? [] : ["--disable-userns (the seccomp filter refuses user namespaces all the same)"]),
    ...(size ? [] : ["--size (file systems in memory have no limit of their own)"]),
  ];
  if (missing.length === 0) return { name: "bubblewrap", status: "ok", detail: version };
  const detail = `${version}, without ${missing.join(" and ")}`;
  return { name: "bubblewrap", status: "warn", detail, fix: "install bubblewrap 0.8 or newer" };
}

async function trialFinding(
  { account, bubblewrapPath }: LocalSettings,
  features: BubblewrapFeatures,
): Promise<Finding> {
  const args = [
    ...["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try"],
    ...(features.disableUserNamespaces ? ["--disable-userns"] : []),
    ...["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", ...systemArguments(), ...procArguments()],
    ...["--dev", "/dev", "--tmpfs", "/tmp", "--remount-ro", "/", "--", "/bin/sh", "-c", "exit 0"],
  ];
  try {
    const who = account === null ? {} : { uid: account.uid, gid: account.gid };
    await run(bubblewrapPath, args, { ...who, cwd: "/", env: {}, timeout: TRIAL_TIMEOUT_MS });
    return { name: "trial sandbox", status: "ok", detail: "started and ended" };
  } catch (error) {
    const said = (error as { stderr?: string }).stderr?.trim();
    return failed("trial sandbox", explainStart(new StartProblem(said || String(error))));
  }
}

function accountFinding({ account, accountIds }: LocalSettings): Finding {
  const name = "account";
  if (account === null)
    return {
      name,
      status: "ok",
      detail: `sandboxes run as this account (uid ${process.getuid?.()}), and share what the kernel gives it`,
    };
  const shared = sharingProblem(accountIds);
  if (account.uid !== 0 && shared === null)
    return {
      name,
      status: "ok",
      detail: `every sandbox has an account of its own; files belong to uid ${account.uid}`,
    };
  if (account.uid !== 0) {
    const detail = `sandboxes share uid ${account.uid}, and what the kernel gives one account: ${shared}`;
    return { name, status: "warn", detail, fix: "set accountIds to ids that this user namespace has" };
  }
  const fix = "set local.uid and local.gid to an account that owns nothing";
  return { name, status: "fail", detail: "sandboxes must not run as root", fix };
}

function filterFinding(): Finding {
  const name = "seccomp";
  if (FILTER_ARCHITECTURES.includes(process.arch))
    return { name, status: "ok", detail: `a filter for ${process.arch}` };
  const detail = `no filter for ${process.arch}: namespaces and empty capabilities are all there is`;
  return { name, status: "warn", detail, fix: "run on x64 or arm64" };
}

function toolsFinding(): Finding {
  const missing = TOOLS.filter((path) => !isExecutable(path));
  if (missing.length === 0) return { name: "tools", status: "ok", detail: "everything a start needs is there" };
  const fix = "install coreutils, util-linux and mount";
  return { name: "tools", status: "fail", detail: `missing: ${missing.join(", ")}`, fix };
}

/** Checks the files that a sandbox needs. */
export function daemonFinding({ daemon, nodePath }: Pick<LocalSettings, "daemon" | "nodePath">): Finding {
  const missing = [daemon.bundle, daemon.supervisor].filter((path) => !existsSync(path));
  if (missing.length > 0) {
    const fix = "build the project: npm run build";
    return { name: "sandboxd", status: "fail", detail: `missing: ${missing.join(", ")}`, fix };
  }
  const lacking = [
    ...(daemon.pty === null ? ["for terminals"] : []),
    ...(daemon.koffi === null ? ["for starting processes without a fork (commands take longer)"] : []),
  ];
  if (lacking.length === 0) return { name: "sandboxd", status: "ok", detail: `run by ${nodePath}` };
  const detail = `no native part ${lacking.join(", nor ")} on ${process.platform} ${process.arch}`;
  return { name: "sandboxd", status: "warn", detail, fix: "install the optional dependencies of @sandlot/sandboxd" };
}

function lateBindingFinding({ account }: LocalSettings): Finding {
  const name = "late binding";
  if (account !== null) return { name, status: "ok", detail: "blanks can wait in a pool and take a workspace later" };
  const detail = "off: sandboxes run as this account and could rename what is in their slot, so there are no blanks";
  return { name, status: "ok", detail };
}

function limitFindings({ fleetId }: LocalSettings): readonly Finding[] {
  const limits = openLimits({ fleetId, world: systemWorld() });
  const { memory, cpu, pids, missing } = limits.description;
  limits.close();
  const finding = (name: string, { by, says }: Enforcement): Finding => ({
    name,
    status: by === "none" ? "warn" : "ok",
    detail: says,
    ...(by === "none" && missing !== null && { fix: `give this account control groups (${missing})` }),
  });
  return [finding("memory limit", memory), finding("cpu limit", cpu), finding("process limit", pids)];
}

/** Tries quotas on the disk of the fleet's workspaces; for a home that does not exist yet, on its parent's disk. */
async function diskFinding({ home, fleetId }: LocalSettings): Promise<Finding> {
  const name = "disk limit";
  const root = join(home, fleetId);
  if (!existsSync(root)) {
    const sight = lookForQuotas(nearest(root));
    const { by, says } = describeDisk(sight);
    const untried = sight.possible ? "; not tried yet" : "";
    return { name, status: "ok", detail: `${says} (by ${by}${untried})` };
  }
  const onProblem = () => {};
  const { by, says } = describeDisk(await new ProjectQuotas({ root, world: systemWorld(), onProblem }).sight());
  return { name, status: "ok", detail: `${says} (by ${by})` };
}

function nearest(path: string): string {
  return existsSync(path) ? path : nearest(dirname(path));
}

function failed(name: string, error: unknown): Finding {
  const fix = isSandlotError(error, "isolation_unavailable") ? error.details.fix : undefined;
  const detail = error instanceof Error ? error.message : String(error);
  return { name, status: "fail", detail, ...(fix !== undefined && { fix }) };
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
