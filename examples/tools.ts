/** The tools by themselves: what every framework below gets. */
import { sandlotTools } from "@sandlot/client/tools";
import { openFleet } from "sandlot";

await using fleet = await openFleet({ backend: "memory", store: { type: "memory" } });
await using tools = sandlotTools(fleet, { thread: "chat-42", secrets: { API_TOKEN: "not-for-the-model" } });

const show = async (name: string, input: object) => console.log((await tools.call(name, input)).text);

await show("write_file", { path: "greet.sh", content: 'echo "Hello, $1"\n' });
await show("bash", { command: 'sh greet.sh World; echo "token: $API_TOKEN"' });
await show("str_replace", { path: "greet.sh", old_str: "Hello", new_str: "Good morning" });
await show("bash", { command: "sh greet.sh World | tee /mnt/user-data/outputs/greeting.txt" });
await show("present_files", { filepaths: ["/mnt/user-data/outputs/greeting.txt"] });
