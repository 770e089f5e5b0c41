// Speaks to a gateway with the official openai client, unchanged: `node client.mjs BASE_URL`; prints one JSON object.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "unused", maxRetries: 0 });
const messages = [{ role: "user", content: "hi" }];
const told = {};

const whole = await client.chat.completions.create({ model: "shop", messages, user: "n1" });
told.chat = whole.choices[0].message.content;

const stream = await client.chat.completions.create({
  model: "shop", messages, user: "n2", stream: true, stream_options: { include_usage: true },
});
told.stream = "";
for await (const chunk of stream) {
  told.stream += chunk.choices[0]?.delta?.content ?? "";
  if (chunk.usage) told.usage = chunk.usage.total_tokens;
}

const response = await client.responses.create({ model: "shop", input: "hi", user: "n3" });
told.response = response.output_text;
const next = await client.responses.create({
  model: "shop", input: "and", previous_response_id: response.id, user: "n3",
});
told.next = next.output_text;

const events = await client.responses.create({ model: "shop", input: "hi", user: "n4", stream: true });
told.events = [];
for await (const event of events) {
  if (told.events.at(-1) !== event.type) told.events.push(event.type);
  if (event.type === "response.completed") told.streamed = event.response.output[0].content[0].text;
}

try {
  await client.chat.completions.create({ model: "shop", messages, temperature: 1 });
} catch (error) {
  told.refused = [error.status, error.param];
}
console.log(JSON.stringify(told));
