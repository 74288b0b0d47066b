/** Listening TCP ports, from the kernel's table. */

import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { EGRESS_PORT, type ListeningPort } from "@sandlot/contract";

interface Row {
  readonly port: number;
  readonly address: string;
  readonly inode: string;
}

const LISTEN = "0A";

/** Without the processes, which need a scan of all descriptors. */
export function listeningPorts(): Row[] {
  return [...rowsOf("/proc/net/tcp"), ...rowsOf("/proc/net/tcp6")];
}

export function listeningPortsWithProcesses(pids: readonly number[]): ListeningPort[] {
  const rows = listeningPorts();
  const owners = rows.length === 0 ? new Map<string, number>() : socketOwners(pids);
  const all = rows.map(({ port, address, inode }) => ({ port, address, pid: owners.get(inode) ?? null }));
  // The egress proxy is no server of the sandbox: no process here owns its socket, or the daemon does.
  const ports = all.filter(({ port, pid }) => port !== EGRESS_PORT || (pid !== null && pid !== process.pid));
  return ports.sort((a, b) => a.port - b.port || (a.address < b.address ? -1 : 1));
}

function rowsOf(table: string): Row[] {
  let text: string;
  try {
    text = readFileSync(table, "latin1");
  } catch {
    return [];
  }
  const rows: Row[] = [];
  for (const line of text.split("\n").slice(1)) {
    const fields = line.trim().split(/\s+/);
    const [address = "", port = ""] = (fields[1] ?? "").split(":");
    if (fields[3] === LISTEN)
      rows.push({ port: Number.parseInt(port, 16), address: readable(address), inode: fields[9] ?? "" });
  }
  return rows;
}

/** Hexadecimal, in words of four bytes with the lowest byte first. */
function readable(hex: string): string {
  const bytes: number[] = [];
  for (let word = 0; word < hex.length; word += 8) {
    for (let byte = 6; byte >= 0; byte -= 2) bytes.push(Number.parseInt(hex.slice(word + byte, word + byte + 2), 16));
  }
  if (bytes.length === 4) return bytes.join(".");
  const groups = Array.from({ length: 8 }, (_, i) =>
    (((bytes[i * 2] ?? 0) << 8) | (bytes[i * 2 + 1] ?? 0)).toString(16),
  );
  const text = groups.join(":");
  return text === "0:0:0:0:0:0:0:0" ? "::" : text === "0:0:0:0:0:0:0:1" ? "::1" : text;
}

function socketOwners(pids: readonly number[]): Map<string, number> {
  const owners = new Map<string, number>();
  for (const pid of pids) {
    for (const target of descriptorsOf(pid)) {
      const inode = /^socket:\[(\d+)\]$/.exec(target)?.[1];
      if (inode !== undefined) owners.set(inode, pid);
    }
  }
  return owners;
}

function descriptorsOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((fd) => linkOf(`/proc/${pid}/fd/${fd}`));
  } catch {
    return [];
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}
