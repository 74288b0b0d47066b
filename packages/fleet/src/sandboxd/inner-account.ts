/**
 * The environment of every command: the account inside a sandbox and its initial variables. All engines that run our
 * daemon use the same.
 */

import { DEFAULT_CWD } from "@sandlot/contract";

/** The account inside, with any account outside. */
export const INNER_ACCOUNT = { name: "sandbox", uid: 1000, gid: 1000, home: "/home/sandbox" } as const;

/** The account owns only its home, so it installs programs there. */
const OWN_PREFIX = `${INNER_ACCOUNT.home}/.local`;

/** The environment of every command begins with these variables. */
export const BASE_ENVIRONMENT: Readonly<Record<string, string>> = {
  PATH: `${OWN_PREFIX}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`,
  PIP_BREAK_SYSTEM_PACKAGES: "1",
  NPM_CONFIG_PREFIX: OWN_PREFIX,
  NPM_CONFIG_UPDATE_NOTIFIER: "false",
  HOME: INNER_ACCOUNT.home,
  USER: INNER_ACCOUNT.name,
  LOGNAME: INNER_ACCOUNT.name,
  SHELL: "/bin/sh",
  LANG: "C.UTF-8",
  TMPDIR: "/tmp",
  PWD: DEFAULT_CWD,
};
