#!/usr/bin/env python3
"""Writes goldens/requests.json and goldens/public.jsonl: what jinja2 renders for every public template.

Usage: TZ=UTC python3 make_goldens.py     (jinja2 3.1.6)
"""
import json
import os
import sys

import jinja2

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import conversations  # noqa: E402
import jinja_oracle  # noqa: E402


def template_files():
    folder = os.path.join(HERE, "templates")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".jinja"):
            with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
                yield name, file.read()


def main():
    if jinja2.__version__ != "3.1.6" or os.environ.get("TZ") != "UTC":
        sys.exit("needs jinja2 3.1.6 and TZ=UTC")
    cases = list(conversations.requests())
    folder = os.path.join(HERE, "goldens")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "requests.json"), "w", encoding="utf-8") as out:
        json.dump(dict(cases), out, ensure_ascii=False, indent=0)
        out.write("\n")
    with open(os.path.join(folder, "public.jsonl"), "w", encoding="utf-8") as out:
        for name, source in template_files():
            texts = {case: jinja_oracle.render({**request, "template": source}) for case, request in cases}
            json.dump({"template": name, "texts": texts}, out, ensure_ascii=False)
            out.write("\n")


if __name__ == "__main__":
    main()
