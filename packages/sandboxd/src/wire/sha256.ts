/** SHA-256 in JavaScript: loading `node:crypto` would add several milliseconds to every start. */

/** The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
const ROUND_CONSTANTS = constants(64, (prime) => Math.cbrt(prime));
/** Of the square roots of the first eight. */
const INITIAL = constants(8, (prime) => Math.sqrt(prime));

/** The digest of a text's UTF-8, in hexadecimal digits. */
export function sha256(text: string): string {
  const state = Uint32Array.from(INITIAL);
  const message = padded(Buffer.from(text, "utf8"));
  const schedule = new Uint32Array(64);
  for (let at = 0; at < message.length; at += 64) {
    for (let i = 0; i < 16; i++) schedule[i] = message.readUInt32BE(at + i * 4);
    compress(state, schedule);
  }
  let digits = "";
  for (const word of state) digits += (word + 2 ** 32).toString(16).slice(1);
  return digits;
}

function compress(state: Uint32Array, schedule: Uint32Array): void {
  const word = (index: number): number => schedule[index] as number;
  for (let i = 16; i < 64; i++) {
    const early = rotate(word(i - 15), 7) ^ rotate(word(i - 15), 18) ^ (word(i - 15) >>> 3);
    const late = rotate(word(i - 2), 17) ^ rotate(word(i - 2), 19) ^ (word(i - 2) >>> 10);
    schedule[i] = word(i - 16) + early + word(i - 7) + late;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let i = 0; i < 64; i++) {
    const sumE = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const first = (h + sumE + ((e & f) ^ (~e & g)) + (ROUND_CONSTANTS[i] as number) + word(i)) | 0;
    const sumA = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    const second = (sumA + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + first) | 0;
    d = c;
    c = b;
    b = a;
    a = (first + second) | 0;
  }
  const added = [a, b, c, d, e, f, g, h];
  for (let i = 0; i < added.length; i++) state[i] = (state[i] as number) + (added[i] as number);
}

function rotate(word: number, bits: number): number {
  return (word >>> bits) | (word << (32 - bits));
}

/** A one bit, zeros, and the length in bits, to a multiple of 64 bytes. */
function padded(bytes: Buffer): Buffer {
  const message = Buffer.alloc(Math.ceil((bytes.length + 9) / 64) * 64);
  bytes.copy(message);
  message[bytes.length] = 0x80;
  message.writeBigUInt64BE(BigInt(bytes.length) * 8n, message.length - 8);
  return message;
}

function constants(count: number, root: (prime: number) => number): Uint32Array {
  const found: number[] = [];
  for (let candidate = 2; found.length < count; candidate++) {
    if (isPrime(candidate)) found.push(Math.floor((root(candidate) % 1) * 2 ** 32));
  }
  return Uint32Array.from(found);
}

function isPrime(candidate: number): boolean {
  for (let divisor = 2; divisor * divisor <= candidate; divisor++) if (candidate % divisor === 0) return false;
  return true;
}
