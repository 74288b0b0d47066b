/**
 * The environment of every command: the account inside a sandbox and its initial variables. All engines that run our
 * daemon use the same.
 */

import { DEFAULT_CWD, ownPath, SYSTEM_PATH } from "@sandlot/contract";

/** The account inside, with any account outside. */
export const INNER_ACCOUNT = { name: "sandbox", uid: 1000, gid: 1000 } as const;

/**
 * Makes installers write to the home, the only place that the account owns. `GOBIN` stays unset, because cross builds
 * fail with it. Go's module cache would be read-only, so that only root could remove it.
 */
export function installVariables(home: string): Readonly<Record<string, string>> {
  return {
    PIP_BREAK_SYSTEM_PACKAGES: "1",
    NPM_CONFIG_PREFIX: `${home}/.local`,
    CARGO_INSTALL_ROOT: `${home}/.local`,
    GOFLAGS: "-modcacherw",
  };
}

/** Variables that would lead installers elsewhere, where a sandbox cannot write: in an image they mean its build. */
export const ELSEWHERE_VARIABLES: readonly string[] = [
  ...[
    "CARGO_HOME",
    "GOPATH",
    "GOBIN",
    "GOMODCACHE",
    "GOCACHE",
    "PYTHONUSERBASE",
    "PIP_PREFIX",
    "PIP_TARGET",
    "PIP_USER",
  ],
  ...["PIPX_HOME", "PIPX_BIN_DIR", "UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "UV_CACHE_DIR"],
  ...["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_BIN_HOME"],
];

/** The environment of every command begins with these variables. */
export function baseEnvironment(home: string, systemPath: string = SYSTEM_PATH): Readonly<Record<string, string>> {
  return {
    PATH: `${ownPath(home)}:${systemPath}`,
    ...installVariables(home),
    NPM_CONFIG_UPDATE_NOTIFIER: "false",
    HOME: home,
    USER: INNER_ACCOUNT.name,
    LOGNAME: INNER_ACCOUNT.name,
    SHELL: "/bin/sh",
    LANG: "C.UTF-8",
    TMPDIR: "/tmp",
    PWD: DEFAULT_CWD,
  };
}
