"""Chat templates against jinja2 with the settings of Hugging Face's apply_chat_template.

Public templates on many conversations, and thousands of random templates over the supported subset. The C++ side
is tests/tools/template_probe.cc; the conversations and the reference live in tests/chat.
"""

import json
import re
import subprocess
import sys
import time
import warnings

import jinja2
import pytest

from conftest import BUILD_DIR, SOURCE_DIR

PROBE = BUILD_DIR / "tests" / "chat" / "template_probe"
CHAT_TESTS = SOURCE_DIR / "tests" / "chat"
sys.path.insert(0, str(CHAT_TESTS))

import conversations  # noqa: E402
import jinja_oracle  # noqa: E402
import make_goldens  # noqa: E402
import random_templates  # noqa: E402

RANDOM_TEMPLATES = 8000
SEED = "2024"


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    warnings.simplefilter("ignore", SyntaxWarning)  # Python warns about silly constants in random templates


def ask(requests):
    """The probe's answers, in order."""
    lines = "".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests)
    result = subprocess.run([PROBE], input=lines, capture_output=True, encoding="utf-8", check=True)
    answers = [json.loads(line) for line in result.stdout.split("\n") if line]
    assert len(answers) == len(requests)
    return answers


def check_literal(answer):
    data, last = answer["text"].encode(), 0
    for begin, end in answer["literal"]:
        assert last <= begin < end <= len(data)
        last = end


def test_public_templates():
    cases = [(name, case, {**request, "template": source}) for name, source in make_goldens.template_files()
             for case, request in conversations.requests()]
    assert len({name for name, _, _ in cases}) >= 20
    rendered = 0
    for (name, case, request), answer in zip(cases, ask([request for _, _, request in cases])):
        want = jinja_oracle.render(request)
        if want is None:
            assert "error" in answer, (name, case, "jinja2 raises", jinja_oracle.error_of(request))
        else:
            assert answer.get("text") == want, (name, case, answer.get("error"))
            check_literal(answer)
            rendered += 1
    assert rendered > 500


def test_goldens_are_current():
    with open(CHAT_TESTS / "goldens" / "public.jsonl", encoding="utf-8") as file:
        goldens = {golden["template"]: golden["texts"] for golden in map(json.loads, file)}
    for name, source in make_goldens.template_files():
        for case, request in conversations.requests():
            assert goldens[name][case] == jinja_oracle.render({**request, "template": source}), (name, case)


def render_without_folded_slices(request):
    """jinja2 folds slices of constants, and a failing one becomes undefined; at run time it raises, as here."""
    def impossible(self, eval_ctx=None):
        raise jinja2.nodes.Impossible()

    saved = jinja2.nodes.Slice.as_const
    jinja2.nodes.Slice.as_const = impossible
    jinja_oracle._CACHE.clear()
    try:
        return jinja_oracle.render(request)
    finally:
        jinja2.nodes.Slice.as_const = saved
        jinja_oracle._CACHE.clear()


def test_random_templates():
    requests = list(random_templates.requests(RANDOM_TEMPLATES, SEED))
    equal = errors = refused = 0
    for request, answer in zip(requests, ask(requests)):
        want = jinja_oracle.render(request)
        failed = "error" in answer
        if want is not None and re.search(r" at 0x[0-9a-f]{6,}", want):
            assert failed, request["template"]  # Python prints an address; the engine refuses to
        elif failed and want is None:
            errors += 1
        elif failed and answer["code"] == "unsupported":
            refused += 1
        elif not failed and answer["text"] == want:
            check_literal(answer)
            equal += 1
        else:
            assert (None if failed else answer["text"]) == render_without_folded_slices(request), (request["template"], answer, want)
    assert equal > RANDOM_TEMPLATES // 4
    assert refused < RANDOM_TEMPLATES // 200
    assert errors < RANDOM_TEMPLATES * 7 // 10
