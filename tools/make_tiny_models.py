#!/usr/bin/env python3
"""Makes the tiny random-weight models of tests/goldens and what `transformers` says about them.

Every model is a Hugging Face folder (hf/), most also a GGUF file with the same weights (model.gguf, in the
conventions of llama.cpp's converter), with expected.json and expected.bin: for some prompts the float32
logits and, for one prompt, the hidden state after each layer. All weights are exact in F16 and in BF16, so
the stored type of a file does not change its logits.

    python tools/make_tiny_models.py tests/goldens

Needs tools/requirements-oracle.txt. The same versions make the same bytes.
"""

import argparse
import json
import math
import pathlib
import shutil

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import save_file

from tiny_tokenizers import TEXT, ByteLevelTokenizer, SentencePieceTokenizer

PROMPT_LENGTHS = (1, 7, 40, 200)
ALL_POSITIONS_PROMPT = 2  # index into PROMPT_LENGTHS: logits of every position and hidden states
PERPLEXITY_WINDOW = 64
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
GGUF_TYPES = {name: getattr(gguf.GGMLQuantizationType, name) for name in DTYPES}

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GEMMA_TURNS = (
    "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\n' + "
    "message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 48, "intermediate_size": 80,
    "num_hidden_layers": 3, "num_attention_heads": 14, "num_key_value_heads": 2, "head_dim": 8,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": None, "max_position_embeddings": 512,
    "vocab_size": 336, "tie_word_embeddings": True, "attention_bias": False, "hidden_act": "silu",
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 36, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 9, "num_key_value_heads": 3, "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0, "rope_scaling": None, "max_position_embeddings": 512, "vocab_size": 312,
    "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False, "hidden_act": "silu",
}
GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 40,
    "intermediate_size": 72, "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 1,
    "head_dim": 12, "query_pre_attn_scalar": 12, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0, "rope_scaling": None, "sliding_window": 16, "sliding_window_pattern": 6,
    "max_position_embeddings": 512, "vocab_size": 384, "tie_word_embeddings": True, "attention_bias": False,
    "hidden_activation": "gelu_pytorch_tanh", "final_logit_softcapping": None, "attn_logit_softcapping": None,
}
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}


def model_specs():
    """name -> config, tokenizer, stored types and the peculiarities of each file."""
    chatml = ByteLevelTokenizer("qwen2", special_first=False)
    smollm = ByteLevelTokenizer("smollm", special_first=True)
    llama3 = ByteLevelTokenizer("llama-bpe", special_first=True)
    gemma = SentencePieceTokenizer(vocab_size=384)
    vlm = dict(GEMMA3, query_pre_attn_scalar=20, rope_scaling={"rope_type": "linear", "factor": 8.0})
    return {
        "tiny_qwen3": dict(config=QWEN3, tokenizer=chatml, hf="F32", gguf="F16", template=CHATML),
        "tiny_llama": dict(config=LLAMA, tokenizer=smollm, hf="F16", gguf="F32", template=CHATML),
        "tiny_llama_untied": dict(config=dict(LLAMA, tie_word_embeddings=False), tokenizer=smollm, hf="BF16",
                                  gguf="BF16", template=CHATML, shards=2),
        "tiny_llama3": dict(config=dict(LLAMA, rope_scaling=LLAMA3_ROPE, rope_theta=500000.0), tokenizer=llama3,
                            hf="BF16", gguf="F16", template=CHATML, saved_config=True),
        "tiny_gemma3": dict(config=GEMMA3, tokenizer=gemma, hf="BF16", gguf="BF16", template=GEMMA_TURNS),
        "tiny_gemma3_vlm": dict(config=vlm, tokenizer=gemma, hf="BF16", gguf=None, template=GEMMA_TURNS,
                                text_config=True),
    }


def transformers_config(config):
    """The config as this version of transformers understands it (it no longer reads all older keys)."""
    keys = dict(config)
    architecture = keys.pop("architectures")[0]
    theta, scaling = keys.pop("rope_theta"), keys.pop("rope_scaling")
    rope = dict(scaling or {"rope_type": "default"}, rope_theta=theta)
    if keys["model_type"] == "gemma3_text":
        pattern = keys.pop("sliding_window_pattern")
        keys["layer_types"] = ["full_attention" if (i + 1) % pattern == 0 else "sliding_attention"
                               for i in range(keys["num_hidden_layers"])]
        local = {"rope_type": "default", "rope_theta": keys.pop("rope_local_base_freq")}
        rope = {"full_attention": rope, "sliding_attention": local}
    keys["rope_parameters"] = rope
    model_class = getattr(transformers, architecture)
    out = model_class.config_class(**keys)
    out._attn_implementation = "eager"
    return model_class, out


def exact(values):
    """Rounds to the nearest number that F16 and BF16 both hold; below 2^-14 becomes 0."""
    rounded = torch.from_numpy(values.astype(np.float32)).to(torch.bfloat16).to(torch.float32)
    return torch.where(rounded.abs() < 2.0**-14, torch.zeros_like(rounded), rounded)


def randomize(model, seed):
    """Weights large enough that every part of the model shows in the logits."""
    rng = np.random.default_rng(seed)
    gemma = "gemma" in model.config.model_type
    for name, parameter in sorted(model.named_parameters()):
        shape = tuple(parameter.shape)
        if len(shape) == 1:  # norms; Gemma's are stored minus one
            values = rng.normal(0.0 if gemma else 1.0, 0.3, shape)
        elif "embed_tokens" in name:
            values = rng.normal(0.0, 0.7, shape)
        else:
            values = rng.normal(0.0, 1.2 / math.sqrt(shape[-1]), shape)
        parameter.data.copy_(exact(values))
    model.tie_weights()


def make_prompts(vocab_size, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocab_size, n).tolist() for n in PROMPT_LENGTHS]


def write_expected(model, tokenizer, folder, seed):
    """expected.bin: float32 arrays in the order and with the offsets (in floats) of expected.json."""
    arrays, floats, offset = [], [], 0

    def add(what, prompt, values):
        nonlocal offset
        values = values.detach().float().numpy()
        arrays.append({"what": what, "prompt": prompt, "shape": list(values.shape), "offset": offset})
        floats.append(values.astype("<f4").tobytes())
        offset += values.size

    prompts = make_prompts(tokenizer.size, seed)
    for index, prompt in enumerate(prompts):
        with torch.no_grad():
            out = model(torch.tensor([prompt]), output_hidden_states=True, use_cache=False)
        add("logits", index, out.logits[0, -1])
        if index == ALL_POSITIONS_PROMPT:
            add("all_logits", index, out.logits[0])
            for layer, hidden in enumerate(out.hidden_states[:-1]):  # the last one is normed
                add(f"hidden.{layer}", index, hidden[0])
    (folder / "expected.bin").write_bytes(b"".join(floats))
    document = {"generator": "tools/make_tiny_models.py", "transformers": transformers.__version__,
                "torch": torch.__version__, "prompts": prompts, "arrays": arrays,
                "perplexity": measure_perplexity(model, tokenizer)}
    (folder / "expected.json").write_text(json.dumps(document) + "\n")


def nll_of(model, tokens, first):
    """Sum of -ln p of tokens[first:], each given all tokens before it."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0].double()
    log_p = torch.log_softmax(logits[first - 1 : -1], dim=-1)
    return -float(log_p[torch.arange(len(tokens) - first), torch.tensor(tokens[first:])].sum())


def measure_perplexity(model, tokenizer):
    """Of one text: every token scored, the first one after BOS or else the end token; and in windows of 64
    whose first half is unscored."""
    text = " ".join(TEXT)
    tokens, window = tokenizer.encode(text), PERPLEXITY_WINDOW
    windows = [tokens[i : i + window] for i in range(0, len(tokens) - window + 1, window)]
    if tokenizer.adds_bos:
        windows = [[tokenizer.bos_id] + w[1:] for w in windows]
    scored = tokens if tokenizer.adds_bos else [tokenizer.eos_ids[0]] + tokens
    return {"text": text, "tokens": tokens, "all": {"tokens": len(scored) - 1, "nll": nll_of(model, scored, 1)},
            "windows": {"size": window, "tokens": len(windows) * (window // 2 - 1),
                        "nll": sum(nll_of(model, w, window // 2 + 1) for w in windows)}}


# ---- Hugging Face folder ---------------------------------------------------------------------------


def write_hf(name, spec, model, folder):
    folder.mkdir()
    config, tokenizer = dict(spec["config"]), spec["tokenizer"]
    config["bos_token_id"], config["eos_token_id"] = tokenizer.bos_id, tokenizer.eos_ids[0]
    if spec.get("saved_config"):  # as save_pretrained of this version writes it
        model.config.bos_token_id, model.config.eos_token_id = tokenizer.bos_id, tokenizer.eos_ids[0]
        config = json.loads(model.config.to_json_string(use_diff=False))
        config["architectures"] = spec["config"]["architectures"]
    tensors = {k: v.to(DTYPES[spec["hf"]]).contiguous() for k, v in model.state_dict().items()}
    if spec["config"]["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    if spec.get("text_config"):  # a multimodal checkpoint; tied only inside text_config (VOC-D1)
        tensors = {"language_model." + k: v for k, v in tensors.items()}
        tensors["vision_tower.patch_embedding.weight"] = torch.zeros(4, 3, dtype=DTYPES[spec["hf"]])
        config = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
                  "eos_token_id": tokenizer.eos_ids, "text_config": config,
                  "vision_config": {"hidden_size": 4}}
    write_json(folder / "config.json", config)
    write_shards(tensors, folder, spec.get("shards", 1))
    write_json(folder / "generation_config.json", {"eos_token_id": tokenizer.eos_ids, "bos_token_id": tokenizer.bos_id})
    (folder / "tokenizer.json").write_text(tokenizer.json() + "\n")
    write_json(folder / "tokenizer_config.json", tokenizer.config(spec["template"]))


def write_shards(tensors, folder, shards):
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names, weight_map = sorted(tensors), {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {k: tensors[k] for k in names[i::shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map.update({k: file for k in part})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


# ---- GGUF file -------------------------------------------------------------------------------------

GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}
GEMMA_GGUF_NAMES = dict(GGUF_NAMES, post_attention_layernorm="post_attention_norm",
                        pre_feedforward_layernorm="ffn_norm", post_feedforward_layernorm="post_ffw_norm")


def gguf_name(name, gemma):
    fixed = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
    if name in fixed:
        return fixed[name]
    _, _, layer, part = name.split(".", 3)
    return f"blk.{layer}.{(GEMMA_GGUF_NAMES if gemma else GGUF_NAMES)[part.removesuffix('.weight')]}.weight"


def interleave_rotary(weight, num_heads):
    """Row order of the llama type: the halves of each head become pairs."""
    rows, cols = weight.shape
    return weight.reshape(num_heads, 2, rows // num_heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def llama3_rope_factors(config):
    """What each rotary frequency is divided by (the tensor rope_freqs)."""
    scaling, head_dim = config["rope_scaling"], config["hidden_size"] // config["num_attention_heads"]
    original = scaling["original_max_position_embeddings"]
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    out = []
    for i in range(head_dim // 2):
        wavelength = 2 * math.pi * config["rope_theta"] ** (2 * i / head_dim)
        if wavelength < original / high:
            out.append(1.0)
        elif wavelength > original / low:
            out.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            out.append(1.0 / ((1 - smooth) / factor + smooth))
    return np.array(out, dtype=np.float32)


def add_gguf_config(writer, config):
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if config["model_type"] == "llama":
        writer.add_vocab_size(config["vocab_size"])
        writer.add_rope_dimension_count(head_dim)
    if config["model_type"] == "gemma3_text":
        writer.add_sliding_window(config["sliding_window"])


def write_gguf(name, spec, model, path):
    config, tokenizer = spec["config"], spec["tokenizer"]
    architecture = {"gemma3_text": "gemma3"}.get(config["model_type"], config["model_type"])
    gemma, matrix_type = architecture == "gemma3", GGUF_TYPES[spec["gguf"]]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    add_gguf_config(writer, config)
    tokenizer.add_to_gguf(writer, config["vocab_size"])
    writer.add_chat_template(spec["template"])
    if (config["rope_scaling"] or {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_rope_factors(config))
    for key, value in model.state_dict().items():
        if key == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        data = value.float().numpy()
        if gemma and key.endswith("norm.weight"):
            data = data + np.float32(1.0)
        for projection, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if architecture == "llama" and projection in key:
                data = interleave_rotary(data, config[heads])
        kind = matrix_type if data.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(key, gemma), gguf.quants.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder that gets one folder for each model")
    parser.add_argument("--only", action="append", help="a model's name; may be repeated")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed, (name, spec) in enumerate(model_specs().items(), start=1):
        if args.only and name not in args.only:
            continue
        folder = args.out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model_class, config = transformers_config(spec["config"])
        model = model_class(config).eval()
        randomize(model, seed)
        write_expected(model, spec["tokenizer"], folder, seed)
        write_hf(name, spec, model, folder / "hf")
        if spec["gguf"]:
            write_gguf(name, spec, model, folder / "model.gguf")
        size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, {size} bytes")


if __name__ == "__main__":
    main()
