// Decodes stored prompts greedily with the llama.cpp that node-llama-cpp carries
// and prints what it chose. Arguments: the directory of node_modules, and a JSON
// list of jobs {model, trajectories, kv, free}. Ids go in and come out; no
// tokenizer has a say. Output: one JSON line a job.
//
// free: a run that goes on with its own tokens, token by token, as a user's
// does. Otherwise each token is chosen after the stored text, a prompt in one
// batch, which is faster and judges every step.
import fs from "fs";
import path from "path";
import {pathToFileURL} from "url";

const [modules, list] = process.argv.slice(2);
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(path.join(modules, "node-llama-cpp/dist/index.js")));
const llama = await getLlama({gpu: false, build: "never", skipDownload: true, logLevel: LlamaLogLevel.error});
// The two largest logits alone: to hand over all 4,096 takes longer than to compute them.
const next = {generateNext: {token: true, logits: {filter: {includeTop: 2}}, options: {temperature: 0}}};
for (const job of JSON.parse(list)) {
  const model = await llama.loadModel({modelPath: job.model});
  const kv = job.kv ? {experimentalKvCacheKeyType: job.kv, experimentalKvCacheValueType: job.kv, flashAttention: false} : {};
  // One thread: on a busy machine ggml's threads spin while they wait for each other.
  const context = await model.createContext({contextSize: 512, threads: 1, ...kv});
  const sequence = context.getSequence();
  const prompts = [];
  for (const t of JSON.parse(fs.readFileSync(job.trajectories)).trajectories) {
    await sequence.clearHistory();
    const ids = [], margins = [];
    const evaluate = async (text, first) => {
      const input = text.map((id, i) => i < first ? id : [id, next]);
      for (const r of await sequence.controlledEvaluate(input)) {
        if (!r) continue;
        const [a, b] = [...r.next.logits.values()].sort((x, y) => y - x);
        ids.push(r.next.token);
        margins.push(a - b);
      }
    };
    const last = t.prompt_ids.length - 1;
    if (job.free) {
      await evaluate(t.prompt_ids, last);
      while (ids.length < t.ids.length) await evaluate(ids.slice(-1), 0);
    } else {
      await evaluate([...t.prompt_ids, ...t.ids.slice(0, -1)], last);
    }
    prompts.push({ids, margins});
  }
  console.log(JSON.stringify({prompts}));
  await context.dispose();
  await model.dispose();
}
process.exit(0);
