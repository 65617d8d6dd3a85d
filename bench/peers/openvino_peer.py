"""One run of OpenVINO GenAI; prints a JSON object with the benchmark's metrics.

    openvino_peer.py FOLDER_OR_GGUF THREADS PROMPTS TOKENS

PROMPTS is a comma list of prompt lengths, TOKENS the number of tokens written. Prefill tok/s is the prompt's length by
the time to the first token (with one sampling in it); decode tok/s is from the mean time of the tokens after the first.
KV cache u8, everything else at its default. Runs in the environment of requirements-openvino.txt.
"""

import json
import sys
import time

import numpy as np
import openvino
import openvino_genai


def generate(pipeline, prompt_tokens, new_tokens, rng):
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = new_tokens
    config.ignore_eos = True
    config.do_sample = False
    ids = rng.integers(300, 30000, (1, prompt_tokens), dtype=np.int64)
    inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
    return pipeline.generate(inputs, config).perf_metrics


def main():
    model, threads, prompts, tokens = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    rng = np.random.default_rng(0)
    start = time.monotonic()
    pipeline = openvino_genai.LLMPipeline(
        model, "CPU", INFERENCE_NUM_THREADS=threads, PERFORMANCE_HINT="LATENCY", KV_CACHE_PRECISION="u8"
    )
    load_ms = (time.monotonic() - start) * 1e3
    result = {"load_ms": load_ms, "first_token_ms": generate(pipeline, 16, 1, rng).get_ttft().mean}
    for prompt in map(int, prompts.split(",")):
        result[f"prefill {prompt}"] = prompt / generate(pipeline, prompt, 1, rng).get_ttft().mean * 1e3
    result[f"decode {tokens}"] = 1e3 / generate(pipeline, 16, tokens + 1, rng).get_tpot().mean
    print(json.dumps(result))


if __name__ == "__main__":
    main()
