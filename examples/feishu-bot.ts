/**
 * A Feishu (Lark) bot that puts received files into the conversation's sandbox and lists them. Put your agent where the
 * comment is. Needs FEISHU_APP_ID and FEISHU_APP_SECRET; ends with Ctrl-C.
 */
import { sandlotTools } from "@sandlot/client/tools";
import { openFleet } from "sandlot";
import { openFeishuChannel } from "sandlot/channels";

const { FEISHU_APP_ID, FEISHU_APP_SECRET, FEISHU_DOMAIN } = process.env;
if (FEISHU_APP_ID === undefined || FEISHU_APP_SECRET === undefined) {
  console.error("Set FEISHU_APP_ID and FEISHU_APP_SECRET to what the developer console shows for your app.");
  process.exit(2);
}

await using fleet = await openFleet({ backend: "memory", store: { type: "memory" } });
const channel = await openFeishuChannel({
  source: fleet,
  appId: FEISHU_APP_ID,
  appSecret: FEISHU_APP_SECRET,
  ...(FEISHU_DOMAIN === undefined ? {} : { domain: FEISHU_DOMAIN }),
  async onMessage({ user, thread, text, reply }, signal) {
    await using tools = sandlotTools(fleet, { user, thread, purpose: "bot", signal });
    // Your agent goes here: `text` is the message, with the paths of its files.
    const { text: listing } = await tools.call("list_uploaded_files", {});
    await reply(`You said: ${text}\n\nYour files:\n${listing}`);
  },
  onError: (error) => console.error("feishu:", error instanceof Error ? error.message : error),
});
await channel.start();
console.log("the bot listens");
await new Promise((resolve) => process.once("SIGINT", resolve).once("SIGTERM", resolve));
await channel.stop();
