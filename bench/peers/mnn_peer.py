"""One run of MNN's language model API; prints a JSON object with the benchmark's metrics.

    mnn_peer.py CONFIG_JSON THREADS PROMPTS TOKENS

CONFIG_JSON is the config.json of an MNN model folder. Prefill and decode rates are from MNN's own times; KV cache at its
default. Runs in the environment of requirements-mnn.txt. MNN logs to standard output: the object is the last line.
"""

import json
import random
import sys
import time

import MNN.llm


def generate(model, prompt_tokens, new_tokens, rng):
    model.reset()
    model.set_config({"max_new_tokens": new_tokens})
    model.generate([rng.randrange(300, 30000) for _ in range(prompt_tokens)])
    context = model.context
    context.refresh()
    return context


def main():
    config, threads, prompts, tokens = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    rng = random.Random(0)
    start = time.monotonic()
    model = MNN.llm.create(config)
    settings = {"backend_type": "cpu", "thread_num": threads, "precision": "low", "memory": "low"}
    model.set_config(settings)
    model.load()
    result = {"load_ms": (time.monotonic() - start) * 1e3}
    result["first_token_ms"] = generate(model, 16, 1, rng).prefill_us / 1e3
    generate(model, int(prompts.split(",")[0]), 1, rng)
    for prompt in map(int, prompts.split(",")):
        result[f"prefill {prompt}"] = prompt / generate(model, prompt, 1, rng).prefill_us * 1e6
    written = generate(model, 16, tokens + 1, rng)
    if written.gen_seq_len < tokens:
        sys.exit(f"mnn_peer: {written.gen_seq_len} tokens came, expected {tokens}: an end token came early")
    result[f"decode {tokens}"] = (written.gen_seq_len - 1) / written.decode_us * 1e6
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
