#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_tables.inc: the character classes and the NFC data that tokenizers see.

The tables are not taken from a Unicode release but probed from the Python package `tokenizers` (pinned in
tests/requirements.txt), because token ids must equal what that package computes: its regular expressions,
its digit test and its NFC each carry a Unicode version of their own.

Usage: make_unicode_tables.py OUTPUT
"""

import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CHUNK = 20000  # code points per probe text

# Bits of a character class; unicode.h names them the same.
LETTER, NUMBER, SPACE, DIGIT_SPLIT, WORD, NFC_INTERACTS = 1, 2, 4, 8, 16, 32


def chunks():
    for i in range(0, len(ALL), CHUNK):
        yield ALL[i : i + CHUNK]


def matched_by(pre_tokenizer):
    """Code points that `pre_tokenizer` isolates. Every probe character stands between two \\x01."""
    found = set()
    for chunk in chunks():
        text = "\x01" + "\x01\x01".join(map(chr, chunk)) + "\x01"
        for _, (begin, end) in pre_tokenizer.pre_tokenize_str(text):
            if end - begin == 1 and text[begin] != "\x01":
                found.add(ord(text[begin]))
    return found


def regex_class(pattern):
    return matched_by(pre_tokenizers.Split(Regex(pattern), "isolated"))


def added_token_probe(text_of, **flags):
    """Offsets at which the added token § is found in text_of(c), for every c."""
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.add_tokens([AddedToken("§", normalized=False, **flags)])
    for chunk in chunks():
        texts = [text_of(chr(c)) for c in chunk]
        for c, encoding in zip(chunk, tokenizer.encode_batch(texts)):
            yield c, [o for i, o in zip(encoding.ids, encoding.offsets) if i == 1]


def word_characters():
    return {c for c, hits in added_token_probe(lambda x: x + "§", single_word=True)
            if not hits and c != ord("§")}


def strip_characters():
    return {c for c, hits in added_token_probe(lambda x: x + "§", lstrip=True) if hits[0][0] == 0
            and c != ord("§")}


def normalize_each(normalizer, texts):
    out = normalizer.normalize_str("\n".join(texts)).split("\n")
    assert len(out) == len(texts)
    return out


def probe_map(normalizer, text_of):
    """text_of(c) normalized, for every c but the line feed."""
    result = {}
    for chunk in chunks():
        cps = [c for c in chunk if c != 0x0A]
        result.update(zip(cps, normalize_each(normalizer, [text_of(chr(c)) for c in cps])))
    return result


def combining_classes(nfd):
    """Canonical combining class of every code point that has one, found by how NFD reorders it."""
    lowest, highest = chr(0x334), chr(0x345)
    after = probe_map(nfd, lambda x: "a" + x + lowest)
    before = probe_map(nfd, lambda x: "a" + highest + x)
    reordered = [c for c in after if after[c] == "a" + lowest + chr(c) or before[c] == "a" + chr(c) + highest]
    representative = {}
    for c in reordered:
        if unicodedata.combining(chr(c)) and nfd.normalize_str(chr(c)) == chr(c):
            representative.setdefault(unicodedata.combining(chr(c)), chr(c))
    classes = {}
    for c in reordered:
        candidates = set(representative)
        for value, r in representative.items():
            if r == chr(c):
                candidates = {value}
                break
            if nfd.normalize_str("a" + chr(c) + r) == "a" + r + chr(c):
                candidates = {v for v in candidates if v > value}
            elif nfd.normalize_str("a" + r + chr(c)) == "a" + chr(c) + r:
                candidates = {v for v in candidates if v < value}
        assert len(candidates) == 1, (hex(c), candidates)
        classes[c] = candidates.pop()
    return classes


def is_hangul(c):
    return 0xAC00 <= c < 0xD7A4


def one_step_decompositions(full, nfc):
    """{code point: (first, second or 0, composes)} from full decompositions."""
    by_text = {}
    for c, d in full.items():
        if len(d) > 1 and (d not in by_text or nfc[c] == chr(c)):
            by_text[d] = c
    steps = {}
    for c, d in full.items():
        if len(d) == 1:
            steps[c] = (ord(d), 0, False)
            continue
        head = ord(d[0]) if len(d) == 2 else by_text[d[:-1]]
        steps[c] = (head, ord(d[-1]), nfc[c] == chr(c))
    return steps


def runs(values):
    """[(first code point, value)] of the runs of equal value over all code points."""
    out, last = [], None
    for c in range(0x110000):
        v = values.get(c, 0)
        if v != last:
            out.append((c, v))
            last = v
    return out


def wrap(name, type_name, items):
    lines, line = [], ""
    for item in items:
        if len(line) + len(item) + 1 > 118:
            lines.append(line)
            line = ""
        line += item + ","
    lines.append(line)
    return f"inline constexpr {type_name} {name}[] = {{\n" + "\n".join(lines) + "\n};\n"


def main():
    nfc_oracle, nfd_oracle = normalizers.NFC(), normalizers.NFD()
    letters, numbers, spaces = regex_class(r"\p{L}"), regex_class(r"\p{N}"), regex_class(r"\s")
    digits, words = matched_by(pre_tokenizers.Digits(individual_digits=True)), word_characters()
    assert strip_characters() == spaces, "added tokens strip other characters than \\s"
    nfc, nfd = probe_map(nfc_oracle, lambda x: x), probe_map(nfd_oracle, lambda x: x)
    ccc = combining_classes(nfd_oracle)
    full = {c: d for c, d in nfd.items() if d != chr(c) and not is_hangul(c)}
    steps = one_step_decompositions(full, nfc)
    seconds = {b for _, b, composes in steps.values() if composes}
    interacts = {c for c in nfc if nfc[c] != chr(c)} | set(ccc) | seconds
    interacts |= set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul vowels, tails
    classes = {}
    for bit, members in ((LETTER, letters), (NUMBER, numbers), (SPACE, spaces), (DIGIT_SPLIT, digits),
                         (WORD, words), (NFC_INTERACTS, interacts)):
        for c in members:
            classes[c] = classes.get(c, 0) | bit
    with open(sys.argv[1], "w", encoding="ascii") as f:
        f.write("// Generated by tools/make_unicode_tables.py from tokenizers " + tokenizers.__version__ +
                "; do not edit.\n// Runs: code point << 8 | value, up to the next entry. Decompositions: code "
                "point, first, second;\n// bit 31 of the code point: the pair composes.\n")
        f.write(wrap("kClassRuns", "uint32_t", [hex(c << 8 | v) for c, v in runs(classes)]))
        f.write(wrap("kCombiningClassRuns", "uint32_t", [hex(c << 8 | v) for c, v in runs(ccc)]))
        f.write(wrap("kDecompositions", "uint32_t",
                     [f"{hex(c | (composes << 31))},{hex(a)},{hex(b)}" for c, (a, b, composes) in sorted(steps.items())]))
    print(f"letters {len(letters)}, numbers {len(numbers)}, digits {len(digits)}, words {len(words)}, "
          f"ccc {len(ccc)}, decompositions {len(steps)}")


if __name__ == "__main__":
    main()
