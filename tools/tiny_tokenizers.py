"""The small tokenizers of the tiny test models: byte-level BPE and SentencePiece-style BPE.

Each is trained here on a few fixed sentences and can be written as tokenizer.json (for Hugging Face folders)
and as the tokenizer.* metadata of a GGUF file.
"""

import json

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = [
    "The kettle is on the stove and the water is hot.",
    "What is the weather like in the north today?",
    "She sells sea shells on the sea shore, 123 of them at 45 cents.",
    "今天天气很好，我们去公园散步。今天的茶很好喝。",
    "def add(a, b):\n    return a + b\n",
]

QWEN2_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level_splitter(pre):
    if pre == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    pattern = QWEN2_PATTERN if pre == "qwen2" else LLAMA3_PATTERN
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


class ByteLevelTokenizer:
    """ChatML special tokens, 256 byte tokens, a few dozen merges; two end tokens."""

    SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

    def __init__(self, pre, special_first, merges=53):
        self.pre = pre
        self._tokenizer = Tokenizer(models.BPE())
        self._tokenizer.pre_tokenizer = byte_level_splitter(pre)
        self._tokenizer.decoder = decoders.ByteLevel()
        if pre == "qwen2":
            self._tokenizer.normalizer = normalizers.NFC()
        size = 256 + merges + (len(self.SPECIAL) if special_first else 0)
        trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, min_frequency=1,
                                      initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                      special_tokens=self.SPECIAL if special_first else [])
        self._tokenizer.train_from_iterator(TEXT, trainer)
        self._tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in self.SPECIAL])
        self.size = self._tokenizer.get_vocab_size()
        self.adds_bos = False
        self.bos_id = self._tokenizer.token_to_id("<|endoftext|>")
        self.eos_ids = [self._tokenizer.token_to_id("<|im_end|>"), self.bos_id]

    def json(self):
        return self._tokenizer.to_str()

    def encode(self, text):
        return self._tokenizer.encode(text).ids

    def config(self, template):
        return {"tokenizer_class": "GPT2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>",
                "add_bos_token": False, "chat_template": template}

    def add_to_gguf(self, writer, rows):
        tokens = [self._tokenizer.id_to_token(i) for i in range(self.size)]
        special = set(self.SPECIAL)
        types = [gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens]
        tokens += [f"[PAD{i}]" for i in range(len(tokens), rows)]
        types += [gguf.TokenType.UNUSED] * (rows - len(types))
        merges = json.loads(self.json())["model"]["merges"]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
        writer.add_bos_token_id(self.bos_id)
        writer.add_eos_token_id(self.eos_ids[0])
        writer.add_add_bos_token(False)


class SentencePieceTokenizer:
    """Gemma's kind: ▁ for spaces, byte fallback, BOS in front; two end tokens."""

    SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]

    def __init__(self, vocab_size):
        learner = Tokenizer(models.BPE())
        learner.normalizer = normalizers.Replace(" ", "▁")
        bytes_ = [f"<0x{b:02X}>" for b in range(256)]
        learner.train_from_iterator(TEXT, trainers.BpeTrainer(
            vocab_size=vocab_size - len(self.SPECIAL) - len(bytes_), show_progress=False, min_frequency=1,
            limit_alphabet=60))
        model = json.loads(learner.to_str())["model"]
        learned = sorted(model["vocab"], key=model["vocab"].get)
        self.tokens = self.SPECIAL + bytes_ + [t for t in learned if t not in self.SPECIAL]
        self.merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
        vocab = {t: i for i, t in enumerate(self.tokens)}
        self._tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=self.merges, unk_token="<unk>", fuse_unk=True,
                                               byte_fallback=True))
        self._tokenizer.normalizer = normalizers.Replace(" ", "▁")
        self._tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
        self._tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                                     decoders.Fuse()])
        self._tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in self.SPECIAL])
        self._tokenizer.post_processor = processors.TemplateProcessing(
            single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", 2)])
        self.size = self._tokenizer.get_vocab_size()
        self.adds_bos = True
        self.bos_id, self.eos_ids = 2, [1, self.SPECIAL.index("<end_of_turn>")]

    def json(self):
        return self._tokenizer.to_str()

    def encode(self, text):
        return self._tokenizer.encode(text).ids

    def config(self, template):
        return {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>",
                "pad_token": "<pad>", "unk_token": "<unk>", "add_bos_token": True, "chat_template": template}

    def add_to_gguf(self, writer, rows):
        assert len(self.tokens) <= rows
        tokens = self.tokens + [f"<unused{i}>" for i in range(rows - len(self.tokens))]
        rank = {a + b: i for i, (a, b) in reversed(list(enumerate(self.merges)))}
        types = []
        for token in tokens:
            if token == "<unk>":
                types.append(gguf.TokenType.UNKNOWN)
            elif token in self.SPECIAL:
                types.append(gguf.TokenType.CONTROL)
            elif token.startswith("<0x"):
                types.append(gguf.TokenType.BYTE)
            else:
                types.append(gguf.TokenType.UNUSED if token.startswith("<unused") else gguf.TokenType.NORMAL)
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(tokens)
        writer.add_token_scores([-float(rank.get(t, 1000)) for t in tokens])
        writer.add_token_types(types)
        writer.add_bos_token_id(2)
        writer.add_eos_token_id(1)
        writer.add_eot_token_id(self.eos_ids[1])
        writer.add_unk_token_id(3)
        writer.add_pad_token_id(0)
        writer.add_add_bos_token(True)
        writer.add_add_space_prefix(False)
