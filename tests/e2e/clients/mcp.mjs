// An MCP client over Streamable HTTP. Arguments: the URL, then the tools to call. A line for each step: its name and what came.
const [url, ...tools] = process.argv.slice(2);
let id = 0, session;

async function post(message) {
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  if (session) headers["mcp-session-id"] = session;
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(message) });
  session ??= answer.headers.get("mcp-session-id");
  const text = await answer.text();
  if (!answer.ok) return `${answer.status} ${JSON.parse(text).error}`;
  if (!answer.headers.get("content-type")?.startsWith("text/event-stream")) return text.trim();
  return text.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join(" ");
}

const request = (method, params) => ({ jsonrpc: "2.0", id: ++id, method, params });
const show = async (name, message) => console.log(name, await post(message));

await show("initialize", request("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "lab", version: "1" } }));
await show("initialized", { jsonrpc: "2.0", method: "notifications/initialized" });
await show("list", request("tools/list", {}));
for (const name of tools) await show(name, request("tools/call", { name, arguments: { path: "/x" } }));
await show("batch", tools.map((name) => request("tools/call", { name, arguments: {} })));
