/**
 * A small assembler for the classic BPF programs that seccomp runs: labels instead of jump distances.
 *
 * Invariants
 * - Jumps go forward only, as the kernel demands, and at most 255 instructions far. A longer one does not assemble.
 * - Every label that is used is placed exactly once.
 * - The result is an array of `struct sock_filter` in little-endian order: both architectures we build for are.
 */

/** Opcodes: class, size or operation, and whether the operand is a constant. */
const OPCODE = {
  loadWord: 0x20,
  and: 0x54,
  jumpIfEqual: 0x15,
  jumpIfGreater: 0x25,
  jumpIfGreaterOrEqual: 0x35,
  jumpIfAnyBit: 0x45,
  return: 0x06,
} as const;

export type Comparison = "jumpIfEqual" | "jumpIfGreater" | "jumpIfGreaterOrEqual" | "jumpIfAnyBit";

/** Where a jump goes; a side that is not named falls through. */
export interface Branches {
  readonly yes?: string;
  readonly no?: string;
}

interface Instruction {
  readonly opcode: number;
  readonly operand: number;
  readonly branches?: Branches;
}

const INSTRUCTION_BYTES = 8;
const JUMP_MAX = 255;
/** The kernel's BPF_MAXINSNS. */
const PROGRAM_MAX = 4_096;

export class Assembler {
  readonly #instructions: Instruction[] = [];
  readonly #labels = new Map<string, number>();

  load(offset: number): this {
    return this.#add({ opcode: OPCODE.loadWord, operand: offset });
  }

  and(mask: number): this {
    return this.#add({ opcode: OPCODE.and, operand: mask });
  }

  jump(comparison: Comparison, operand: number, branches: Branches): this {
    return this.#add({ opcode: OPCODE[comparison], operand, branches });
  }

  return(action: number): this {
    return this.#add({ opcode: OPCODE.return, operand: action });
  }

  label(name: string): this {
    if (this.#labels.has(name)) throw new RangeError(`The label ${name} is placed twice.`);
    this.#labels.set(name, this.#instructions.length);
    return this;
  }

  assemble(): Uint8Array {
    if (this.#instructions.length > PROGRAM_MAX) throw new RangeError("The program is longer than the kernel takes.");
    const bytes = new Uint8Array(this.#instructions.length * INSTRUCTION_BYTES);
    const view = new DataView(bytes.buffer);
    for (const [index, { opcode, operand, branches }] of this.#instructions.entries()) {
      const at = index * INSTRUCTION_BYTES;
      view.setUint16(at, opcode, true);
      view.setUint8(at + 2, this.#distance(index, branches?.yes));
      view.setUint8(at + 3, this.#distance(index, branches?.no));
      view.setUint32(at + 4, operand, true);
    }
    return bytes;
  }

  #add(instruction: Instruction): this {
    this.#instructions.push(instruction);
    return this;
  }

  #distance(from: number, label: string | undefined): number {
    if (label === undefined) return 0;
    const target = this.#labels.get(label);
    if (target === undefined) throw new RangeError(`The label ${label} is never placed.`);
    const distance = target - from - 1;
    if (distance < 0 || distance > JUMP_MAX) throw new RangeError(`The jump to ${label} is ${distance} long.`);
    return distance;
  }
}
