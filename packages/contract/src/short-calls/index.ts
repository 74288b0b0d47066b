/**
 * `@sandlot/contract/short-calls`: how two of our processes ask each other for something short. Nothing of Node is
 * imported, so that a bundle for browsers may hold it; only where there is Node is it ever called.
 */

export * from "./errors.ts";
export type { Answer, AnswerHead, Engaged } from "./incoming-answer.ts";
export * from "./kept-lines.ts";
