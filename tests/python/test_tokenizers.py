"""Token ids and decoded text against the Hugging Face `tokenizers` package, on more than 100,000 lines.

Tokenizers: Qwen3 (its own tokenizer.json), SmolLM2 and Gemma 3 (rebuilt from their GGUF vocabularies as the
official files are), and small ones trained here in the style of GPT-2, Llama 3 and Llama 2, plus one full of
unusual added tokens. The C++ side is tests/tools/tokenizer_probe.cc.
"""

import gzip
import json
import pathlib
import random
import struct
import subprocess

import pytest
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

from conftest import BUILD_DIR, DATA_DIR, DATA_REQUIRED, data_path, require_model

PROBE = BUILD_DIR / "tests" / "tokenizer" / "tokenizer_probe"

QWEN_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
                r"\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3_PATTERN = QWEN_PATTERN.replace(r"\p{N}|", r"\p{N}{1,3}|")
MIN_LINES = 100_000
SEED = 20240607


def read(path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as f:
        return f.read().decode("utf-8")


# --- texts ---------------------------------------------------------------------------------------------------

SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028",
          "\u0085", "\x0b", "\x0c", "\x1c", " " * 5, " " * 31, " " * 33, " " * 70, "\n" * 33, "\t" * 4]
WORDS = ["the", "Hello", "don't", "I'LL", "we've", "it'ſ", "'S", "x7", "20487", "१२३", "½", "Ⅷ", "①", "naïve", "nai\u0308ve",
         "e\u0301\u0323", "\u1100\u1161\u11a8", "각", "가\u11a8", "한국어", "日本語", "中文字符", "العربية", "שלום",
         "👨‍👩‍👧", "🦙", "🇨🇳", "❤️", "a_b", "==", "->", "();", "<b>", "</b>", "▁", "▁▁", "Ġ", "\u0344", "\u212b", "\u037e",
         "\u0958", "\ufb2c", "\u0f73", "\U0001d15e", "\u2126", "\ufeff", "\x00", "\x7f", "#include <x>", "http://a.b/c?d=e"]


def random_text(rng):
    kind = rng.randrange(5)
    n = rng.randrange(1, 25)
    if kind == 0:  # any code points
        return "".join(chr(random_scalar(rng, 0x110000)) for _ in range(n))
    if kind == 1:  # one small range, so that neighbours interact
        start = random_scalar(rng, 0x2FA20)
        return "".join(chr(c) for c in (start + rng.randrange(64) for _ in range(n)) if not 0xD800 <= c < 0xE000)
    if kind == 2:  # marks on letters
        return "".join(rng.choice("aeiouyAEn가각ᄀ") + "".join(chr(rng.choice(MARKS)) for _ in range(rng.randrange(4)))
                       for _ in range(n))
    if kind == 3:
        return "".join(chr(rng.randrange(0x80)) for _ in range(n))
    return "".join(rng.choice(WORDS) + (rng.choice(SPACES) if rng.random() < 0.7 else "") for _ in range(n))


MARKS = [*range(0x300, 0x370), *range(0x591, 0x5c8), *range(0x64b, 0x660), 0x3099, 0x309a, 0x93c, 0x94d, 0x5b0,
         *range(0x1161, 0x1176), *range(0x11a7, 0x11c3), 0x1dfa, 0x345, 0x334]


def random_scalar(rng, limit):
    c = rng.randrange(limit)
    return c if not 0xD800 <= c < 0xE000 else 0x4E00


def data_lines():
    lines = []
    for pattern in ("calib/*/*.txt", "eval/*/*.jsonl*", "tokenizer/golden/*.jsonl*"):
        for path in sorted(DATA_DIR.glob(pattern)):
            content = read(path)
            for line in content.split("\n"):
                # As written: JSON with its quotes and escapes is a text like any other.
                lines.append(line[:250])
            if path.name.endswith("text.jsonl.gz"):
                lines += [json.loads(x)["text"] for x in content.split("\n") if x]
    if not lines and not DATA_REQUIRED:
        return []  # without the shared data, random texts alone make up the number
    lines += json.loads(read(data_path("tokenizer/utf8/blns.json")))
    content = read(data_path("tokenizer/utf8/all_assigned_printable.txt.gz"))
    return lines + [content[i : i + 100] for i in range(0, len(content), 100)]


@pytest.fixture(scope="session")
def lines():
    rng = random.Random(SEED)
    texts = data_lines()
    texts += [random_text(rng) for _ in range(max(25_000, MIN_LINES + 1_000 - len(texts)))]
    texts += ["q" * 3000, "." * 3000, " " * 3000, "木" * 3000, "\n" * 3000, "a\u0301" * 2000, "1" * 3000]
    assert len(texts) >= MIN_LINES
    return texts


# --- the C++ side --------------------------------------------------------------------------------------------


def probe(arguments, commands):
    """Runs the probe on [(command, bytes)]; returns the answers as bytes."""
    data = b"".join(c + struct.pack("<I", len(b)) + b for c, b in commands)
    done = subprocess.run([PROBE, *arguments], input=data, stdout=subprocess.PIPE, check=True)
    answers, offset = [], 0
    while offset < len(done.stdout):
        (size,) = struct.unpack_from("<I", done.stdout, offset)
        answers.append(done.stdout[offset + 4 : offset + 4 + size])
        offset += 4 + size
    assert len(answers) == len(commands)
    return answers


def pack(ids):
    return struct.pack(f"<{len(ids)}I", *ids)


def unpack(data):
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def oracle_ids(oracle, texts, special):
    """With special=False, special tokens in the texts are ordinary text."""
    oracle.encode_special_tokens = not special
    ids = []
    for i in range(0, len(texts), 5000):
        ids += [e.ids for e in oracle.encode_batch_fast(texts[i : i + 5000], add_special_tokens=False)]
    oracle.encode_special_tokens = False
    return ids


def check_ids(arguments, command, texts, expected):
    answers = probe(arguments, [(command, t.encode()) for t in texts])
    wrong = [(t, e, unpack(a)) for t, e, a in zip(texts, expected, answers) if a != pack(e)]
    shown = "\n".join(f"{t[:200]!r}: expected {e[:40]}, got {g[:40]}" for t, e, g in wrong[:5])
    assert not wrong, f"{command}: {len(wrong)} of {len(texts)} differ:\n{shown}"


def check_equal(arguments, oracle, texts):
    """Ids with special tokens for every text, and without them for the last ones. Returns the former."""
    expected = oracle_ids(oracle, texts, special=True)
    check_ids(arguments, b"s", texts, expected)
    last = texts[-10_000:]
    check_ids(arguments, b"e", last, oracle_ids(oracle, last, special=False))
    check_written(arguments, texts, expected)
    return expected


def check_written(arguments, texts, expected):
    """The tokenizer.json that we write of a tokenizer gives the package the same ids, and us the same file."""
    done = subprocess.run([PROBE, "--write", *arguments] if arguments[0] != "--scores" else
                          [PROBE, "--scores", "--write", *arguments[1:]], stdout=subprocess.PIPE, check=True)
    written = Tokenizer.from_str(done.stdout.decode())
    texts, expected = texts[::3], expected[::3]  # of every kind; the reader's own tests see them all
    wrong = [(t, e, g) for t, e, g in zip(texts, expected, oracle_ids(written, texts, special=True)) if e != g]
    shown = "\n".join(f"{t[:200]!r}: expected {e[:40]}, got {g[:40]}" for t, e, g in wrong[:5])
    assert not wrong, f"written tokenizer.json: {len(wrong)} of {len(texts)} differ:\n{shown}"
    path = pathlib.Path(arguments[-1]).with_suffix(".written.json")
    path.write_bytes(done.stdout)
    again = subprocess.run([PROBE, "--write", path], stdout=subprocess.PIPE, check=True)
    assert again.stdout == done.stdout


def check_decoded(arguments, oracle, id_lists):
    id_lists = id_lists[-20_000:]
    expected = oracle.decode_batch(id_lists, skip_special_tokens=False)
    whole = probe(arguments, [(b"d", pack(ids)) for ids in id_lists])
    stream = probe(arguments, [(b"i", pack(ids)) for ids in id_lists])
    wrong = [(e, w.decode()) for e, w in zip(expected, whole) if w.decode() != e]
    assert not wrong, f"{len(wrong)} of {len(id_lists)} differ, such as {wrong[:3]!r}"
    assert stream == whole


def check_bytes(arguments, normalizes):
    """Bytes that are no UTF-8 come back as they were."""
    rng = random.Random(SEED + 1)
    texts = [bytes(rng.randrange(256) for _ in range(rng.randrange(1, 40))) for _ in range(5000)]
    texts += [b"\xe6\xad", b"\xff", b"a\xc3", b"\xc3(", "é🦙".encode()[:-1]]
    if normalizes:  # NFC leaves text below U+00C0 alone
        texts = [bytes(b for b in t if not 0xC3 <= b < 0xF5) for t in texts]
    ids = probe(arguments, [(b"e", t) for t in texts])
    decoded = probe(arguments, [(b"d", i) for i in ids])
    for text, result in zip(texts, decoded):
        assert result.decode() == text.decode("utf-8", errors="replace"), text


def save(oracle, path):
    path.write_text(oracle.to_str(), encoding="utf-8")
    return [str(path)]


# --- the tokenizers ------------------------------------------------------------------------------------------


def gguf_fields(name):
    from gguf import GGUFReader

    fields = GGUFReader(require_model(name)).fields
    return {k.split(".")[-1]: f.contents() for k, f in fields.items() if k.startswith("tokenizer.ggml.")}


def byte_level(tokenizer, pre):
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def smollm_pre():
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False)])


def split_pre(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train(tokenizer, specials=(), size=3000, alphabet=True, texts=None):
    rng = random.Random(SEED + 2)
    texts = texts or [random_text(rng) for _ in range(1000)] + data_lines()[:3000]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(specials), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [])
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def test_qwen3(tmp_path, lines):
    oracle = Tokenizer.from_str(read(data_path("tokenizer/qwen3/tokenizer.json.gz")))
    arguments = save(oracle, tmp_path / "tokenizer.json")
    ids = check_equal(arguments, oracle, lines)
    check_decoded(arguments, oracle, ids)
    check_bytes(arguments, normalizes=True)


def test_smollm2(tmp_path, lines):
    fields = gguf_fields("smollm2-135m")
    merges = [tuple(m.split(" ")) for m in fields["merges"]]
    vocab = {t: i for i, t in enumerate(fields["tokens"])}
    oracle = byte_level(Tokenizer(models.BPE(vocab, merges)), smollm_pre())
    oracle.add_special_tokens([t for t, k in zip(fields["tokens"], fields["token_type"]) if k == 3])
    arguments = save(oracle, tmp_path / "tokenizer.json")
    check_decoded(arguments, oracle, check_equal(arguments, oracle, lines))


def gemma_merges(tokens, types, scores):
    """Merges in the order in which the Hugging Face converter writes those of a SentencePiece model."""
    mergeable = {t: i for i, t in enumerate(tokens) if types[i] in (1, 4)}
    score = {t: 0.0 if types[i] == 4 else scores[i] for t, i in mergeable.items()}
    merges = []
    for piece in mergeable:
        local = [(piece[:i], piece[i:], score[piece]) for i in range(1, len(piece))
                 if piece[:i] in mergeable and piece[i:] in mergeable]
        merges += sorted(local, key=lambda m: (mergeable[m[0]], mergeable[m[1]]))
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    return [m[:2] for m in merges]


def test_gemma3(tmp_path, lines):
    fields = gguf_fields("gemma3-270m")
    types, scores = fields["token_type"], fields["scores"]
    tokens = [t.replace(" ", "▁") if k == 4 else t for t, k in zip(fields["tokens"], types)]
    oracle = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, gemma_merges(tokens, types, scores),
                                  unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    oracle.normalizer = normalizers.Replace(" ", "▁")
    oracle.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    oracle.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    oracle.add_tokens([AddedToken(t, normalized=False, special=k == 3) for t, k in zip(tokens, types) if k in (3, 4)])
    arguments = save(oracle, tmp_path / "tokenizer.json")
    ids = check_equal(arguments, oracle, lines)
    check_decoded(arguments, oracle, ids)
    check_bytes(arguments, normalizes=False)
    # The same from what GGUF has: pieces, types and scores, no merges.
    vocabulary = [{"token": t, "type": k, "score": s} for t, k, s in zip(fields["tokens"], types, scores)]
    (tmp_path / "scores.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    arguments = ["--scores", str(tmp_path / "scores.json")]
    check_ids(arguments, b"s", lines, ids)
    check_written(arguments, lines, ids)


SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]


@pytest.mark.parametrize("style", ["gpt2", "gpt2-split", "gpt2-prefix", "llama3", "qwen2", "smollm", "no-split"])
def test_trained_byte_level(style, tmp_path, lines):
    gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    pre = {"gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False), "gpt2-split": split_pre(gpt2),
           "gpt2-prefix": pre_tokenizers.ByteLevel(add_prefix_space=True), "llama3": split_pre(LLAMA3_PATTERN),
           "qwen2": split_pre(QWEN_PATTERN), "smollm": smollm_pre(),
           "no-split": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)}[style]
    oracle = byte_level(Tokenizer(models.BPE(ignore_merges=style == "llama3")), pre)
    if style == "qwen2":
        oracle.normalizer = normalizers.NFC()
    train(oracle, SPECIALS)
    if style == "llama3":
        oracle.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])])
    arguments = save(oracle, tmp_path / "tokenizer.json")
    texts = lines if style == "llama3" else lines[-15_000:]
    ids = check_equal(arguments, oracle, texts)
    if style != "gpt2-prefix":
        check_decoded(arguments, oracle, ids)
        check_bytes(arguments, normalizes=style == "qwen2")


@pytest.mark.parametrize("byte_fallback, prefix, fuse_unk", [(True, True, False), (True, False, True),
                                                             (False, True, True), (False, False, False)])
def test_trained_sentencepiece(byte_fallback, prefix, fuse_unk, tmp_path, lines):
    oracle = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_fallback))
    replace = normalizers.Replace(" ", "▁")
    oracle.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace]) if prefix else replace
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    oracle.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if prefix else []))
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    # ASCII words only, so that other characters are unknown.
    texts = [t for t in data_lines()[:3000] if t.isascii()] or ["some words to train on", "and some more words"]
    train(oracle, specials, size=1500, alphabet=False, texts=texts)
    # Byte tokens are part of the vocabulary, not special.
    content = json.loads(oracle.to_str())
    content["added_tokens"] = content["added_tokens"][:3]
    oracle = Tokenizer.from_str(json.dumps(content))
    arguments = save(oracle, tmp_path / "tokenizer.json")
    texts = lines[-8_000:]
    ids = check_equal(arguments, oracle, texts)
    if byte_fallback:
        check_decoded(arguments, oracle, ids)


def added_token_texts(contents, count):
    rng = random.Random(SEED + 3)
    glue = ["", "", " ", "  ", "a", "_", "é", "\n", "\t ", "中", "1", "!", "\u00a0", "\u0301", "e", "|", "<", ">"]
    return ["".join(rng.choice(contents) + rng.choice(glue) + rng.choice(glue) for _ in range(rng.randrange(1, 6)))
            for _ in range(count)]


@pytest.mark.parametrize("normalizer", [None, "nfc", "spaces"])
def test_added_tokens(normalizer, tmp_path):
    """lstrip, rstrip, single_word, normalized, prefixes of each other, with and without special."""
    contents = ["<|a|>", "<|a|>b", "|a|", "word", "wor", "ord x", "  ", "\n", "<é>", "<e\u0301>", "a b", "tail", "日本"]
    rng = random.Random(SEED + 4)
    for trial in range(15):
        if normalizer == "spaces":
            oracle = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
            oracle.normalizer = normalizers.Replace(" ", "▁")
            train(oracle, ["<unk>"], size=300, alphabet=False, texts=["a word or two word tail", "ab|<> word"])
        else:
            oracle = byte_level(Tokenizer(models.BPE()), split_pre(QWEN_PATTERN))
            oracle.normalizer = normalizers.NFC() if normalizer else None
            train(oracle, size=400, texts=["a word or two word tail", "ab|<> word"])
        flag = lambda: rng.random() < 0.4
        for content in rng.sample(contents, 8):
            # The package panics where lstrip meets spaces that the token before has taken.
            token = AddedToken(content, lstrip=flag() and not content.isspace(), rstrip=flag(), single_word=flag(), normalized=flag())
            # A special token that the model can also merge is the one difference, and it is wanted.
            special = flag() and oracle.token_to_id(content) is None
            oracle.add_special_tokens([token]) if special else oracle.add_tokens([token])
        arguments = save(oracle, tmp_path / f"{trial}.json")
        oracle = Tokenizer.from_file(arguments[0])
        check_equal(arguments, oracle, added_token_texts(contents, 400))
