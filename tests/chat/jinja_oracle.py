"""The reference: jinja2 with the settings of Hugging Face's apply_chat_template."""
import copy
import datetime
import json

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """{% generation %}: the body runs in a scope of its own and is written as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


class ChatNamespace(jinja2.utils.Namespace):
    """Refuses attributes that begin with an underscore, as the chat environment does."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            ChatNamespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        ChatNamespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def make_environment(now=None):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        moment = datetime.datetime.now() if now is None else datetime.datetime.fromtimestamp(now)
        return moment.strftime(format)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    env.globals["namespace"] = ChatNamespace
    return env


_CACHE = {}


def render(request):
    """The text for a request as in tests/tools/template_probe.cc, or None if jinja2 raises."""
    now = request.get("now")
    key = (request["template"], now)
    try:
        if key not in _CACHE:
            _CACHE[key] = make_environment(now).from_string(request["template"])
        variables = {"messages": request.get("messages", []), "tools": request.get("tools"), "documents": None,
                     "add_generation_prompt": request.get("add_generation_prompt", False)}
        for token in ("bos_token", "eos_token"):
            if request.get(token):
                variables[token] = request[token]
        # A copy: some filters of jinja2 change lists in place (indent).
        variables.update(copy.deepcopy(request.get("extra", {})))
        return _CACHE[key].render(**variables)
    except Exception:  # whatever jinja2 or Python raises is "an error"
        return None


def error_of(request):
    """The text of what jinja2 raises, for messages."""
    try:
        make_environment(request.get("now")).from_string(request["template"]).render(
            messages=request.get("messages", []), tools=request.get("tools"), documents=None,
            add_generation_prompt=request.get("add_generation_prompt", False),
            **{k: request[k] for k in ("bos_token", "eos_token") if request.get(k)}, **copy.deepcopy(request.get("extra", {})))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
