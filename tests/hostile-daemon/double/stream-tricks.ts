/** Faults of everything but single responses: frames, lines, holds, terminals, tunnels and uploads. */

import { frame, type Honest } from "./honest.ts";
import {
  chunk,
  ENDS,
  flood,
  honestBytes,
  STALL,
  type Step,
  switching,
  type Trick,
  terminalFrames,
  text,
  webSocketFrame,
  write,
} from "./steps.ts";

const streamHead = write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");

const frames: Trick = (chance) => {
  const junk = () =>
    frame(
      chance.pick([0, 1, 2, 3, 4, 5, 6, 255]),
      chance.pick([0, 1, 5, 2 ** 40, 2 ** 53]),
      Buffer.alloc(chance.below(20), 0x61),
    );
  return chance.pick<() => readonly Step[]>([
    () => [
      streamHead,
      write(chunk(Buffer.concat(Array.from({ length: 1 + chance.below(9) }, junk)))),
      chance.pick(ENDS),
    ],
    () => [
      streamHead,
      write(chunk(frame(1, 0, Buffer.from("abc"), chance.pick([4, 1_000_000, 1_048_577, 2 ** 32 - 1])))),
      chance.pick([STALL, flood(chunk(Buffer.alloc(5_000)))]),
    ],
    () => [streamHead, { do: "drip", bytes: chunk(frame(1, 0, Buffer.from("abc"))) }, STALL],
    () => {
      const many = Buffer.concat(Array.from({ length: 5_000 }, (_, index) => frame(3, index + 1, Buffer.alloc(0))));
      return [streamHead, write(chunk(many)), STALL];
    },
    () => [
      streamHead,
      write(chunk(frame(5, 0, Buffer.from(chance.pick(["{}", "", "[", '{"execId":1}', "[".repeat(100_000)]))))),
      STALL,
    ],
  ])();
};

const lines: Trick = (chance) => {
  const many = Array.from({ length: 5_000 }, (_, index) => `{"type":"created","path":"/${index}"}\n`).join("");
  const content = chance.pick([
    "\n",
    "{}\n",
    "x",
    "x".repeat(200_000),
    '{"type":"ready","path":"/x"}\n\n',
    '{"type":"boom","path":"/x"}\n',
    many,
    `${"[".repeat(30_000)}\n`,
    '{"type":"created","path":"\xff\xfe"}\n',
    `{"type":"created","path":"${"x".repeat(60_000)}"}\n`,
  ]);
  return [
    streamHead,
    chance.chance(0.2) ? flood(chunk(text(content))) : write(chunk(text(content))),
    chance.pick(ENDS),
  ];
};

const hold: Trick = (chance, _honest, asked) => {
  const greeting = { pid: 1, generation: asked.generation, run: "r" };
  const content = chance.pick([
    `${JSON.stringify({ ...greeting, generation: 99 })}\n`,
    `${JSON.stringify({ ...greeting, pid: "x" })}\n`,
    "\n",
    "[".repeat(5_000),
    `${JSON.stringify(greeting)}\n${"x".repeat(90_000)}`,
    JSON.stringify(greeting),
  ]);
  return [
    streamHead,
    chance.chance(0.2) ? flood(chunk(text(content))) : write(chunk(text(content))),
    chance.pick(ENDS),
  ];
};

const terminal: Trick = (chance, _honest, asked) => {
  const begin = write(switching(asked));
  const ws = webSocketFrame;
  return chance.pick<() => readonly Step[]>([
    () => [
      begin,
      write(
        ws(
          1,
          text(
            chance.pick([
              "boom",
              "",
              "{}",
              "[",
              '{"type":"position","offset":-1,"droppedBytes":0}',
              '{"type":"position","offset":1e300,"droppedBytes":0}',
              "[".repeat(70_000),
            ]),
          ),
        ),
      ),
      STALL,
    ],
    () => [begin, write(ws(1, Buffer.from([0xff, 0xfe, 0xfd]))), STALL],
    () => [begin, flood(ws(2, Buffer.alloc(32 * 1024)))],
    () => [begin, flood(ws(2, Buffer.alloc(chance.pick([0, 1]))), 2_000_000)],
    () => [
      begin,
      flood(
        Buffer.concat([ws(1, text('{"type":"position","offset":5,"droppedBytes":1}')), ws(2, Buffer.alloc(1))]),
        2_000_000,
      ),
    ],
    () => [begin, flood(ws(9, text("ping")), 2_000_000)],
    () => [
      begin,
      write(ws(2, Buffer.alloc(10), { announced: chance.pick([300_000, 2 ** 31, 2 ** 53]) })),
      flood(Buffer.alloc(5_000)),
    ],
    () => [begin, write(ws(chance.pick([3, 7, 11, 15]), Buffer.alloc(2))), STALL],
    () => [begin, write(ws(2, Buffer.alloc(2), { first: 0xf2 })), STALL],
    () => [begin, write(Buffer.from([0x82, 0x82, 1, 2, 3, 4, 5, 6])), STALL],
    () => [
      begin,
      write(ws(2, Buffer.alloc(9), { first: 0x02 })),
      flood(ws(0, Buffer.alloc(9), { first: 0x00 }), 2_000_000),
    ],
    () => [
      begin,
      write(ws(8, Buffer.from(chance.pick([[3], [0, 0], [0xff, 0xff], [3, 232, 0xff, 0xff]])))),
      chance.pick(ENDS),
    ],
    () => [
      write(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: wrong\r\n\r\n",
      ),
      STALL,
    ],
    () => [begin, { do: "drip", bytes: terminalFrames() }, STALL],
  ])();
};

const tunnel: Trick = (chance, honest, asked) => [
  write(honestBytes(honest, asked)),
  chance.pick([flood("bytes"), write("bytes"), STALL]),
  chance.pick(ENDS),
];

const upload: Trick = (chance, honest, asked) => {
  const begin = write(honestBytes({ ...honest, kind: "tunnel" }, asked));
  return [
    begin,
    chance.pick([
      write("{"),
      write("[".repeat(60_000)),
      flood("{}"),
      write('{"error":{}}'),
      write('{"error":{"code":"sandbox_lost","message":"","retryable":true,"details":{}}}'),
    ]),
    chance.pick(ENDS),
  ];
};

export const SPECIAL: Partial<Record<Honest["kind"], Trick>> = {
  frames,
  lines,
  hold,
  terminal,
  tunnel,
  upload,
  switch: terminal,
};
