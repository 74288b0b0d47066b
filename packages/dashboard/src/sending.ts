/**
 * A request with a file as its body. `fetch` says nothing about how much was sent; the older interface does, and reads
 * the file from the disk as it sends it.
 */

const listeners = new WeakMap<Blob, (sentBytes: number) => void>();

/** Calls `onSent` while this file is sent. */
export function watchSending(file: Blob, onSent: (sentBytes: number) => void): void {
  listeners.set(file, onSent);
}

export function sendFile(address: string, init: RequestInit, headers: Headers, body: Blob): Promise<Response> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const { signal } = init;
    const abort = () => request.abort();
    const fail = () => reject(signal?.aborted === true ? signal.reason : new TypeError("the connection broke"));
    request.open(init.method ?? "PUT", address);
    for (const [name, value] of headers) request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded }) => listeners.get(body)?.(loaded);
    request.onerror = fail;
    request.onabort = fail;
    request.onloadend = () => {
      signal?.removeEventListener("abort", abort);
      if (request.status === 0) return fail();
      const text = request.status === 204 ? null : request.responseText;
      resolve(new Response(text, { status: request.status, headers: headersOf(request) }));
    };
    signal?.addEventListener("abort", abort, { once: true });
    if (signal?.aborted === true) return fail();
    request.send(body);
  });
}

function headersOf(request: XMLHttpRequest): Headers {
  const headers = new Headers();
  for (const line of request.getAllResponseHeaders().trim().split(/\r?\n/)) {
    const at = line.indexOf(":");
    if (at > 0) headers.append(line.slice(0, at), line.slice(at + 1).trim());
  }
  return headers;
}
