/** Where the directory with the proxy's files is mounted inside. */
export const EGRESS_MOUNT = "/run/sandlot/egress";
