/** The value of a JSON text; `undefined` for a text that is no JSON. It has no limits: `untrusted/json.ts` reads what a sandbox wrote. */
export function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
