"""Makes the OpenVINO model of the Pocket shape: random weights, 4-bit asymmetric in groups of 64, embedding and head too.

    openvino_export.py OUT_FOLDER

Runs in the environment of requirements-openvino.txt. The weights are random ones of transformers: only their shape
matters for speed. No tokenizer: the benchmark feeds token ids.
"""

import sys
import tempfile

import torch
from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig
from transformers import Qwen3Config, Qwen3ForCausalLM

POCKET = dict(
    num_hidden_layers=28,
    hidden_size=896,
    intermediate_size=2560,
    num_attention_heads=14,
    num_key_value_heads=2,
    head_dim=64,
    vocab_size=65536,
    rms_norm_eps=1e-6,
    rope_theta=1e6,
    max_position_embeddings=40960,
    tie_word_embeddings=True,
    bos_token_id=None,
    eos_token_id=65512,
    pad_token_id=65510,
)


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        Qwen3ForCausalLM(Qwen3Config(**POCKET)).to(torch.float16).save_pretrained(folder)
        quantization = OVWeightQuantizationConfig(bits=4, sym=False, group_size=64, ratio=1.0, all_layers=True)
        model = OVModelForCausalLM.from_pretrained(folder, export=True, quantization_config=quantization)
        model.save_pretrained(sys.argv[1])


if __name__ == "__main__":
    main()
