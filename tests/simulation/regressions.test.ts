/**
 * Seeds that once found a bug. A seed fits the code it ran on: when that code changes, the same seed leads elsewhere.
 * They stay because they cost little, and because their titles name the bugs they found.
 */

import { describe, expect, it } from "vitest";
import { runSeed } from "./run.ts";

const FOUND: readonly (readonly [seed: number, what: string])[] = [
  [14, "after a store loss a thread was given a second workspace before its sandbox was adopted"],
  [105, "a workspace that a later generation had used kept its record in stopping for ever"],
  [3, "a sandbox that landed late was adopted although its thread had moved on"],
  [10, "a store that did not answer once ended the serving of the queue"],
  [87, "the store's clock was estimated ahead by the latency of a beat, and idle sandboxes ended early"],
  [45, "holders of a sandbox destroyed by force were told of a crash"],
  [4, "a remote lease that moved to the next generation expired by the sightings of the former"],
  [86, "a remote lease was handed out after a pause in which its session had ended"],
  [66, "a full queue refused a caller although something could be evicted"],
  [39, "a blank that went between its choice and its marker failed the acquire"],
  [118, "a sandbox that others had used in the meantime ended as abandoned"],
  [50, "a second marker made a slot ambiguous, and its workspace was lost"],
  [161, "the warm pool and a user's limit together starved a waiting acquire"],
  [229, "a sandbox that went between the bind and the workspace failed the acquire with file_not_found"],
  [351, "a renewed remote lease expired after the store was lost"],
  [294, "the recovery of an earlier loss of the store condemned in a later one"],
  [922, "a holder gave its lease up when the store was lost twice in a row"],
  [460, "a healthy sandbox whose thread had moved on was stopped as dead"],
  [740, "the reason of a forced destroy was hidden by a second, orphaned record"],
  [1444, "after a long pause a lease was given on a hold that was gone by then"],
  [1845, "an older object of the engine took the thread's key before the real sandbox was adopted"],
  [572, "a peer was buried after the sight had broken, because another burial had been waited for"],
  [3854, "a remote lease that could not be granted again kept its sandbox held for ever"],
  [3824, "a bind that was long on its way gave a thread an older generation"],
  [11761, "a lease was given on a sandbox that the same instance had stopped while it was still connecting to it"],
  [12220, "a remote lease that had moved to the next generation was expired by a judgement on the former"],
  [36045, "a sandbox that was used under a later hold ended as abandoned, by whoever gave up an earlier one"],
  [45489, "a remote lease was told to be expired although it was renewed at another instance"],
  [2031, "a sandbox that the reconciler had found dead was still handed out by its own instance"],
  [433, "a bind with a generation that a lost store gave twice removed the marker of a sandbox in use"],
  [645, "a holder whose host had slept gave leases on a sandbox past its lifetime, after the store was lost"],
  [2139, "a sandbox ended before its lifetime was over, because the store's host had slept since its clock was read"],
  [1647, "a sandbox was evicted although the last caller that needed room had gone"],
  [656, "a closed fleet still waited for the engine's answer to explain"],
  [1259, "a closed fleet still examined a connection that had ended"],
  [1339, "a lease began to restart its sandbox while the fleet closed"],
  [1512, "a closed fleet still ended a sandbox"],
  [1658, "a closed fleet still asked sandboxes whether they were idle"],
  [2382, "a closed fleet still waited for the grant of a remote lease"],
  [1747, "a closed fleet still had a timer to wake those who waited"],
  [154, "what was released while the store was lost was put back two hours older, and ended as expired"],
  [30, "after a registration that failed, what was held was put back by the clock of the lost store"],
  [7, "a registration took effect unheard, and what was held was put back an hour older"],
  [278, "a registration took effect unheard, and what was held was put back an hour younger"],
  [57, "opening a fleet on an engine that does not answer failed with an error without a name"],
  [757, "a closed fleet still unmade a blank whose maker had missed its deadline"],
  [932, "a store that counted from too low promised a purge that the workspace refused"],
];

describe("seeds that once found something", () => {
  for (const [seed, what] of FOUND) {
    it(`${seed}: ${what}`, { timeout: 60_000 }, async () => {
      const { violations } = await runSeed(seed);
      expect(violations).toEqual([]);
    });
  }
});
