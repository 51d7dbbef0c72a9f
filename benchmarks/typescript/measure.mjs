// Conversations with the TypeScript original, pi-agent-core; prints the CPU seconds of the process that each took, as JSON.
//
//     cd FOLDER && node --input-type=module - BASE_URL SCRIPT … < measure.mjs
//
// FOLDER has `@earendil-works/pi-agent-core` and `@earendil-works/pi-ai` in its node_modules: a module that is read from standard
// input finds its packages from the current directory. Each SCRIPT is a path of the benchmark server, such as turns/100. It is run
// twice, and the second time counts, since V8 compiles what runs often.
import { readFileSync } from "node:fs";
import { Agent } from "@earendil-works/pi-agent-core";
import { streamSimple } from "@earendil-works/pi-ai/api/openai-completions";

const [baseUrl, ...scripts] = process.argv.slice(2);

const look = {
  name: "look",
  label: "Look",
  description: "Tell the weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  execute: async (id, { city }) => ({ content: [{ type: "text", text: `It is sunny in ${city}.` }], details: undefined }),
};
// The server would answer with the same long call for ever; the result of the first one ends it.
const lookOnce = { ...look, execute: async () => ({ content: [], details: undefined, terminate: true }) };

async function converse(script) {
  const model = {
    id: "bench", name: "bench", api: "openai-completions", provider: "openai", baseUrl: `${baseUrl}/${script}/v1`, reasoning: false,
    input: ["text"], cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }, contextWindow: 0, maxTokens: 0,
  };
  const agent = new Agent({
    initialState: { systemPrompt: "You are a careful assistant.", model, tools: [script.startsWith("arguments") ? lookOnce : look], thinkingLevel: "off" },
    streamFn: streamSimple,
    getApiKey: () => "none",
  });
  let deltas = 0;
  agent.subscribe((event) => {
    if (event.type === "message_update" && event.assistantMessageEvent.delta !== undefined) deltas += 1;
  });
  await agent.prompt("Travel.");
  if (agent.state.errorMessage) throw new Error(agent.state.errorMessage);
  return deltas;
}

const found = [];
for (const script of scripts) {
  await converse(script);
  const before = process.cpuUsage();
  const deltas = await converse(script);
  const { user, system } = process.cpuUsage(before);
  found.push({ script, deltas, seconds: (user + system) / 1e6 });
}
const version = JSON.parse(readFileSync("node_modules/@earendil-works/pi-agent-core/package.json")).version;
console.log(JSON.stringify({ version, node: process.version, found }));
