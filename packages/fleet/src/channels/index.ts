/** Channels: chat platforms on which people write to agents. */

export type { Channel, ChannelMessage, FileKind, ReceivedFile } from "./channel.ts";
export { FeishuChannel, type FeishuOptions, openFeishuChannel } from "./feishu/feishu-channel.ts";
