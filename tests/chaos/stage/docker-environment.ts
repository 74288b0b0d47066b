/** An environment on a private Docker engine. The bystander is a container. */

import type Docker from "dockerode";
import type { ChaosEngine } from "./engine.ts";
import { Environment, type SandboxName, shapeOf } from "./environment.ts";
import { leftovers } from "./leftovers.ts";
import { Starts } from "./starts.ts";
import { KILL_STAGES, type Tally } from "./tally.ts";

const MIB = 1024 * 1024;

export class DockerEnvironment extends Environment {
  readonly stages = KILL_STAGES;
  readonly engine: ChaosEngine;
  #bystander: Docker.Container | null = null;

  constructor(engine: ChaosEngine, tally: Tally) {
    const { host, image } = engine;
    const docker = { host, image, pull: "never", tmpBytes: 64 * MIB, homeBytes: 64 * MIB } as const;
    super(engine.place, tally, shapeOf({ backend: "docker", docker }));
    this.engine = engine;
  }

  async containerIn(thread: string): Promise<Docker.Container> {
    const found = await this.fleet.find({ thread });
    const filters = { label: [`sandlot.fleet=${this.fleetId}`, `sandlot.sandbox=${found?.sandboxId}`] };
    const [listed] = await this.engine.docker.listContainers({ all: true, filters });
    if (listed === undefined) throw new Error(`${thread} has no container`);
    return this.engine.docker.getContainer(listed.Id);
  }

  watchStarts(): Promise<Starts> {
    return Starts.open(this);
  }

  protected leftovers(meant: readonly SandboxName[]): Promise<readonly string[]> {
    return leftovers(this.engine.docker, { home: this.home, fleetId: this.fleetId }, meant);
  }

  protected async openBystander(): Promise<void> {
    const Labels = { "sandlot.fleet": `${this.fleetId}x` };
    this.#bystander = await this.engine.docker.createContainer({
      ...{ Image: this.engine.image, Cmd: ["sleep", "100000"], Labels, name: "sandlot-bystander" },
      HostConfig: { NetworkMode: "none" },
    });
    await this.#bystander.start();
  }

  protected async bystanderSince(): Promise<string> {
    const state = (await this.#bystander?.inspect())?.State;
    return state?.Running === true ? state.StartedAt : "";
  }

  protected async closeBystander(): Promise<void> {
    await this.#bystander?.remove({ force: true });
  }

  /** Only this code restarts it. */
  protected override async afterTheEnd(after: string): Promise<void> {
    if ((await this.bystanderSince()) !== "") this.tally.violated(`${after}, and the bystander still runs`);
    else await this.#bystander?.start();
    await super.afterTheEnd(after);
  }
}
