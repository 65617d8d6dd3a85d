"""pocketlm prune-vocab: what the tokenizers package makes of cut vocabularies, bounds on real ones, reports, bad input."""

import gzip
import html.parser
import json
import random

import pytest
import tokenizers

from conftest import SOURCE_DIR, cache_folder, data_path, require_model

TINY = SOURCE_DIR / "tests" / "goldens" / "tiny_qwen3"
SIZE = 65_536


def report(done):
    assert done.returncode == 0, done.err
    return json.loads(done.out)


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen3")
    path = folder / "tokenizer.json"
    path.write_bytes(gzip.decompress(data_path("tokenizer/qwen3/tokenizer.json.gz").read_bytes()))
    return path


def random_texts(count):
    rng = random.Random(11)
    words = ["the", " Fox", "你好", "天气", "  ", "\n\n", "def f(x):", "1234", "é", "Привет", "🦙", "한국", "\t", "naïve", "€", " 。"]
    for _ in range(count):
        if rng.random() < 0.5:
            yield "".join(rng.choice(words) for _ in range(rng.randrange(1, 20)))
        else:
            points = (rng.randrange(0x110000) for _ in range(rng.randrange(1, 20)))
            yield "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)


def share(entries, tokens):
    return sum(e[tokens] for e in entries)


def increase(entries):
    return share(entries, "tokens_after") / share(entries, "tokens_before") - 1


def test_qwen3_to_64k_grows_texts_by_little(run, qwen3, tmp_path):
    out = tmp_path / "small.json"
    done = report(run("prune-vocab", qwen3, "--corpus", data_path("train"), "--eval", data_path("eval"), "--size", SIZE,
                      "-o", out, "--json"))
    assert done["tokens"]["after"] == SIZE
    languages = {entry["language"]: entry for entry in done["languages"]}
    assert languages["en"]["increase"] <= 0.03
    assert languages["zh"]["increase"] <= 0.04
    sets = done["sets"]
    assert len(sets) > 40
    assert max(entry["increase"] for entry in sets) <= 0.08
    assert increase([s for s in sets if s["set"].endswith("_en")]) <= 0.04
    assert increase([s for s in sets if s["set"].endswith("_zh")]) <= 0.04

    # The package reads what we wrote, counts as we do, and every text comes back.
    old, new = tokenizers.Tokenizer.from_file(str(qwen3)), tokenizers.Tokenizer.from_file(str(out))
    assert new.get_vocab_size() == SIZE
    kept = set(new.get_vocab())
    unchanged = 0
    for text in random_texts(3000):
        before, after = old.encode(text, add_special_tokens=False), new.encode(text, add_special_tokens=False)
        assert new.decode(after.ids, skip_special_tokens=False) == old.decode(before.ids, skip_special_tokens=False)
        if kept.issuperset(before.tokens):
            unchanged += 1
            assert after.tokens == before.tokens
    assert unchanged > 300
    for token in old.get_added_tokens_decoder().values():
        assert token.content in kept


def test_gemma_keeps_its_texts(run, tmp_path):
    gemma = require_model("gemma3-270m")
    corpus = data_path("train/tldr_pages_en_zh")
    whole, out = tmp_path / "whole.json", tmp_path / "small.json"
    report(run("prune-vocab", gemma, "--corpus", corpus, "--size", 200_000, "-o", whole, "--json"))
    done = report(run("prune-vocab", gemma, "--corpus", corpus, "--size", 32_768, "-o", out, "--json"))
    assert any("Cyrillic" in note or "Arabic" in note for note in done["notes"])
    new = tokenizers.Tokenizer.from_file(str(out))
    assert new.get_vocab_size() == 32_768
    assert {"<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<0x00>", "<0xFF>"} <= set(new.get_vocab())
    assert "<unused7>" not in new.get_vocab()
    for text in random_texts(3000):
        ids = new.encode(text, add_special_tokens=False).ids
        assert new.decode(ids, skip_special_tokens=False) == text


def test_a_cut_model_answers_with_the_same_words(run, tmp_path):
    smollm2 = require_model("smollm2-135m")
    out = tmp_path / "small.plm"
    done = report(run("prune-vocab", smollm2, "--corpus", data_path("train/tasks_en"), "--size", 32_768, "-o", out,
                      "--type", "f16", "--head-type", "f16", "--json", "--bits-per-byte", 2000))
    assert done["sets"][0]["bits_per_byte_after"] < 1.03 * done["sets"][0]["bits_per_byte_before"]
    answers = [json.loads(run("run", model, "-p", "What is the capital of France?", "-n", 12, "--temp", 0, "--json",
                              env={"POCKETLM_HOME": cache_folder()}).out)["text"] for model in (smollm2, out)]
    assert "Paris" in answers[0] and "Paris" in answers[1]


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.cells, self.bars, self.links = [], 0, 0

    def handle_starttag(self, tag, attrs):
        self.bars += tag == "rect"
        self.links += any(name in ("src", "href") for name, _ in attrs)

    def handle_data(self, data):
        self.cells.append(data)


def test_folders_archives_and_the_web_page(run, tmp_path):
    texts = tmp_path / "texts"
    (texts / "a<b").mkdir(parents=True)
    (texts / "a<b" / "x.jsonl.gz").write_bytes(gzip.compress(b'{"id": "zzz", "q": "the fox"}\n'))
    (texts / "a<b" / "README.md").write_text("no text of the corpus")
    (texts / "c").mkdir()
    (texts / "c" / "y.txt").write_text("the dog\nthe fox\n")
    page = tmp_path / "report.html"
    done = report(run("prune-vocab", TINY / "model.gguf", "--corpus", texts, "--size", 300, "-o", tmp_path / "o.plm",
                      "--html", page, "--json"))
    assert [(s["set"], s["passages"]) for s in done["sets"]] == [("a<b", 1), ("c", 2)]
    assert done["judged_on"] == "corpus"
    read = Page()
    read.feed(page.read_text())
    assert read.bars == 4 and read.links == 0 and "a<b" in read.cells
    shown = run("prune-vocab", TINY / "model.gguf", "--corpus", texts, "--size", 300, "-o", tmp_path / "o.plm")
    assert shown.returncode == 0 and "a<b" in shown.out and "verified" in shown.out


@pytest.mark.parametrize("arguments, status, words", [
    (["--corpus", "none.txt", "-o", "o.plm"], 1, ["none.txt"]),
    (["--corpus", "empty", "-o", "o.plm"], 1, ["empty", ".txt"]),
    (["--corpus", "t.txt.gz", "-o", "o.plm"], 1, ["t.txt.gz"]),
    (["--corpus", "bad.jsonl", "-o", "o.plm"], 1, ["bad.jsonl", "line 1"]),
    (["--corpus", "t.txt", "-o", "o.txt"], 2, ["o.txt", ".plm"]),
    (["--corpus", "t.txt", "-o", "o.plm", "--size", "5"], 2, ["size", "got 5"]),
    (["--corpus", "t.txt", "-o", "o.plm", "--size", "500000"], 2, ["size", "got 500000"]),
    (["--corpus", "t.txt", "-o", "o.json", "--bits-per-byte", "9"], 2, ["--bits-per-byte"]),
    (["-o", "o.plm"], 2, ["--corpus"]),
])
def test_bad_input_is_one_line_and_leaves_nothing(run, tmp_path, arguments, status, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "t.txt").write_text("some text")
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(b"some text" * 1000)[:30])
    (tmp_path / "bad.jsonl").write_text("{]\n")
    done = run("prune-vocab", TINY / "model.gguf", *arguments, cwd=tmp_path)
    assert done.returncode == status
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err
    assert not (tmp_path / "o.plm").exists() and not list(tmp_path.glob("o.*"))
