/** Clients of a proxy that send exactly the bytes of a test, over its unix socket. */

import { type IncomingHttpHeaders, type RequestOptions, request } from "node:http";
import { connect, type Socket } from "node:net";

export interface Answer {
  readonly status: number;
  readonly reason: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export interface Asked extends Omit<RequestOptions, "path"> {
  readonly url: string;
  readonly body?: string | Buffer;
}

export function ask(socketPath: string, { url, body, ...options }: Asked): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ agent: false, ...options, socketPath, path: url }, (incoming) => {
      let text = "";
      incoming.setEncoding("latin1");
      incoming.on("data", (chunk: string) => {
        text += chunk;
      });
      incoming.once("error", reject);
      incoming.once("end", () =>
        resolve({
          status: incoming.statusCode ?? 0,
          reason: incoming.statusMessage ?? "",
          headers: incoming.headers,
          body: text,
        }),
      );
    });
    outgoing.once("error", reject);
    outgoing.end(body);
  });
}

export interface Tunnel {
  readonly socket: Socket;
  readonly status: number;
  readonly head: string;
}

/** A tunnel, or the refusal of one with its body in `head`. */
export function openTunnel(socketPath: string, authority: string, early: string | Buffer = ""): Promise<Tunnel> {
  return new Promise((resolve, reject) => {
    const socket = connect({ path: socketPath, allowHalfOpen: true });
    socket.once("error", reject);
    socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
    socket.write(early);
    let text = "";
    const onData = (chunk: Buffer): void => {
      text += chunk.toString("latin1");
      const end = text.indexOf("\r\n\r\n");
      if (end < 0) return;
      const status = Number(text.split(" ")[1]);
      if (status !== 200) return;
      socket.off("data", onData);
      socket.pause();
      if (text.length > end + 4) socket.unshift(Buffer.from(text.slice(end + 4), "latin1"));
      resolve({ socket, status, head: text.slice(0, end + 4) });
    };
    socket.on("data", onData);
    socket.once("end", () => {
      socket.destroy();
      resolve({ socket, status: Number(text.split(" ")[1]), head: text });
    });
  });
}

/** The one response to exactly these bytes. */
export function sayRaw(socketPath: string, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ path: socketPath });
    let answer = "";
    socket.once("error", reject);
    socket.on("data", (chunk: Buffer) => {
      answer += chunk.toString("latin1");
      const parts = /content-length: (\d+)[\s\S]*?\r\n\r\n([\s\S]*)$/i.exec(answer);
      if (parts !== null && parts[2]!.length >= Number(parts[1])) socket.destroy();
    });
    socket.once("close", () => resolve(answer));
    socket.write(text, "latin1");
  });
}

export function readSome(socket: Socket): Promise<string> {
  return new Promise((resolve, reject) => {
    socket.once("error", reject);
    socket.once("data", (chunk: Buffer) => {
      socket.pause();
      resolve(chunk.toString("latin1"));
    });
    socket.resume();
  });
}

export function readAll(socket: Socket): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
    });
    socket.once("end", () => resolve(text));
    socket.once("error", reject);
    socket.resume();
  });
}
