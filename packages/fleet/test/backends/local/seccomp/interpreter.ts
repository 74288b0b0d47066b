/**
 * Runs a classic BPF program as the kernel does, so that every rule can be tried for both architectures on any machine.
 * It knows exactly the instructions that the assembler emits, and refuses programs that the kernel's checker would.
 */

export interface SeccompData {
  readonly number: number;
  readonly architecture: number;
  readonly arguments?: readonly bigint[];
}

const INSTRUCTION_BYTES = 8;

export function runFilter(program: Uint8Array, data: SeccompData): number {
  const memory = dataBytes(data);
  const view = new DataView(program.buffer, program.byteOffset, program.byteLength);
  let accumulator = 0;
  for (let at = 0; at < program.byteLength; ) {
    const opcode = view.getUint16(at, true);
    const operand = view.getUint32(at + 4, true);
    const next = at + INSTRUCTION_BYTES;
    const branch = (condition: boolean) => next + view.getUint8(condition ? at + 2 : at + 3) * INSTRUCTION_BYTES;
    switch (opcode) {
      case 0x20:
        if (operand % 4 !== 0 || operand >= memory.byteLength) throw new RangeError(`load of ${operand}`);
        accumulator = memory.getUint32(operand, true);
        at = next;
        break;
      case 0x54:
        accumulator = (accumulator & operand) >>> 0;
        at = next;
        break;
      case 0x15:
        at = branch(accumulator === operand);
        break;
      case 0x25:
        at = branch(accumulator > operand);
        break;
      case 0x35:
        at = branch(accumulator >= operand);
        break;
      case 0x45:
        at = branch((accumulator & operand) !== 0);
        break;
      case 0x06:
        return operand;
      default:
        throw new RangeError(`opcode ${opcode.toString(16)}`);
    }
  }
  throw new RangeError("the program ends without an answer");
}

function dataBytes({ number, architecture, arguments: args = [] }: SeccompData): DataView {
  const memory = new DataView(new ArrayBuffer(64));
  memory.setUint32(0, number, true);
  memory.setUint32(4, architecture, true);
  for (const [index, value] of args.entries()) memory.setBigUint64(16 + index * 8, value, true);
  return memory;
}
