"""Random templates over the supported subset, seeded: expressions, statements, whitespace control.

Values come from template literals and from data, so that both paths of provenance run. Operations often fail;
then jinja2 and the engine must both fail.
"""
import random

DATA = {
    "u": "Grüße, 世界 <|im_end|>", "s": "Hello World foo", "e": "", "ws": "  a b\t\nc  ", "n": 7, "z": 0, "neg": -3, "f": 2.5, "big": 12345678901234567890,
    "t": True, "no": False, "nil": None, "l": [3, 1, 2], "ls": ["b", "A", "c", "b"], "le": [], "mix": [1, "a", None, True, 2.0],
    "d": {"b": 1, "a": "x", "items": 5}, "de": {}, "rows": [{"k": "x", "v": 2, "o": {"p": 1}}, {"k": "Y", "v": 1}, {"k": "x", "v": 3, "w": None}],
    "sig": "ΑΣ ΣΑΣ ǆ ß ŉ İ", "html": "<a href='x'>&\"</a>", "lines": "a\n\n  b\r\nc\u2028d",
}
STRINGS = ["", "a", "b", " ", ", ", "ab", "World", "o", "\\n", "é", "<b>", "%s", "{}", "x=%d", "l", "A", "1", "0x1f", " 42 ", "3.7", "k", "v"]
STR_METHODS = ["upper()", "lower()", "title()", "capitalize()", "strip()", "lstrip()", "rstrip()", "strip('a ')", "split()", "split(' ', 1)", "split('o')",
               "rsplit('o', 1)", "rsplit(None, 1)", "split(None, 1)", "startswith('H')", "endswith(('d', 'o'))", "replace('o', '0')", "replace('', '-')",
               "replace('l', 'L', 1)", "find('o')", "rfind('o')", "index('o')", "count('o')", "count('')", "splitlines()", "splitlines(true)", "isdigit()",
               "isalpha()", "isspace()", "isupper()", "islower()", "istitle()", "isalnum()", "zfill(9)", "center(11, '*')", "ljust(9)", "rjust(9, '.')",
               "partition('o')", "rpartition('o')", "removeprefix('He')", "removesuffix('oo')", "swapcase()", "format(1, 2)", "join(['p', 'q'])", "isascii()",
               "isdecimal()", "isnumeric()", "isprintable()", "find('o', 5)", "startswith('W', 6)", "count('o', -5)"]
FILTERS = ["trim", "length", "count", "default('D')", "d('D', true)", "join", "join('-')", "first", "last", "upper", "lower", "capitalize", "title",
           "replace('o', '_')", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))", "list", "string", "int", "float", "int(9)", "float(1.5)",
           "abs", "round", "round(1)", "round(1, 'floor')", "round(0, 'ceil')", "map('upper')|list", "map(attribute='k')|list", "map(attribute='w', default='?')|list",
           "map('string')|join('/')", "select|list", "reject|list", "select('string')|list", "reject('none')|list", "select('gt', 1)|list", "selectattr('w', 'defined')|list",
           "selectattr('v', 'gt', 1)|list", "rejectattr('k', 'eq', 'x')|list", "selectattr('w')|list", "sort", "sort(reverse=true)", "sort(attribute='v')",
           "sort(attribute='k,v')", "sort(case_sensitive=true)", "unique|list", "unique(attribute='k')|list", "reverse|list", "reverse", "dictsort", "dictsort(reverse=true)", "dictsort(by='value')", "items|list",
           "indent", "indent(2, true)", "indent('> ', blank=true)", "safe", "escape", "e", "sum", "sum(attribute='v')", "sum(start=1)", "min", "max", "max(attribute='v')",
           "wordcount", "batch(2)|list", "batch(2, 'x')|list", "slice(2)|list", "slice(2, 0)|list", "format(1)", "format('a', 2)", "attr('k')", "truncate(9)", "truncate(9, true, '!', 0)",
           "center(20)", "forceescape", "wordcount", "map('length')|list", "map('default', 1)|list", "length|string", "trim('a ')"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "iterable", "sequence", "odd", "even",
         "divisibleby(2)", "divisibleby 3", "eq(1)", "ne 'a'", "gt 1", "ge(2)", "lt 3", "le 2", "in [1, 2]", "in('abc')", "lower", "upper", "sameas true", "sameas(none)", "callable", "escaped",
         "equalto('x')", "lessthan(5)", "greaterthan 2"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
SLICES = ["[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "[1:3]", "[::2]", "[-2:]", "[5]", "['a']", ".a", ".items", "['items']", "[:0]", "[3:1:-1]", ".k", "[1:2]", "[none:2]", ".missing"]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.names = []

    def atom(self):
        r = self.r
        kind = r.randrange(12)
        if kind < 6:
            return r.choice(list(DATA) + self.names + ["missing"])
        if kind < 8:
            return "'" + r.choice(STRINGS) + "'"
        if kind == 8:
            return r.choice(["0", "1", "2", "-1", "10", "3.5", "1e3", "0.1", "1_000", "true", "none", "false", "0x1F", "1e16", "1e-5", "2.0"])
        if kind == 9:
            return r.choice(["[1, 2, 3]", "['x', 'y']", "[]", "{}", "{'a': 1, 'b': [2]}", "(1, 'a')", "(1,)", "()", "{'k': 'v'}", "range(4)", "range(5, 0, -2)", "namespace(a=1)"])
        if kind == 10:
            return "dict(" + r.choice(["", "a=1", "{'q': 2}, c=3"]) + ")"
        return "'" + r.choice(STRINGS) + "' '" + r.choice(STRINGS) + "'"

    def expr(self, depth=0):
        r = self.r
        if depth > 2:
            return self.atom()
        kind = r.randrange(14)
        if kind < 3:
            return self.atom()
        if kind < 5:
            return f"{self.expr(depth + 1)} {r.choice(BINARY)} {self.expr(depth + 1)}"
        if kind < 7:
            return f"({self.expr(depth + 1)})|{r.choice(FILTERS)}"
        if kind == 7:
            return f"({self.expr(depth + 1)}) is {r.choice(['', 'not '])}{r.choice(TESTS)}"
        if kind == 8:
            return f"{self.atom()}.{r.choice(STR_METHODS)}"
        if kind == 9:
            return f"({self.expr(depth + 1)}){r.choice(SLICES)}"
        if kind == 10:
            return f"({self.expr(depth + 1)} if {self.expr(depth + 1)}{r.choice([' else ' + self.expr(depth + 1), ''])})"
        if kind == 11:
            return f"{r.choice(['not ', '-', '+', ''])}({self.expr(depth + 1)})"
        if kind == 12:
            return f"[{self.expr(depth + 1)}, {self.expr(depth + 1)}]"
        return r.choice([f"{self.atom()}|{r.choice(FILTERS)}|{r.choice(FILTERS)}", f"'{r.choice(['%s', '%5s|', '%-6s|', '%d', '%05.1f', '%r', '%x', '%e', '%g', '%+d', '%%', '%c'])}' % {self.atom()}",
                         f"'%s-%s' % ({self.atom()}, {self.atom()})", f"'{r.choice(['{}', '{0}', '{:>8}', '{:08.3f}', '{!r}', '{:,}', '{:d}', '{:^9}', '{:.2}', '{:x}', '{:%}', '{:g}', '{:+}'])}'.format({self.atom()})",
                         f"{self.atom()} ** {r.choice(['2', '0', '-1', '0.5'])}", f"{self.atom()}.get('a', {self.atom()})", f"{self.atom()}.items()|list",
                         f"{self.atom()}.keys()|list", f"{self.atom()}.values()|join(',')", f"{self.atom()} < {self.atom()} <= {self.atom()}", f"{self.atom()} ~ {self.atom()} ~ {self.atom()}"])

    def text(self):
        return self.r.choice(["", " ", "x", "\n", " \n", "  y\n", "\n\n  ", "a\n ", "\t", "é"])

    def tag(self, body):
        r = self.r
        return "{%" + r.choice(["", "", "-", "+"]) + " " + body + " " + r.choice(["", "", "-", "+"]) + "%}"

    def output(self):
        r = self.r
        return "{{" + r.choice(["", "", "-"]) + " " + self.expr() + " " + r.choice(["", "", "-"]) + "}}"

    def statement(self, depth=0):
        r = self.r
        kind = r.randrange(16)
        body = lambda: self.block(depth + 1)
        if depth > 2 or kind < 5:
            return self.output()
        if kind == 5:
            name = r.choice(["x", "y", "s", "l"])
            out = self.tag(f"set {name} = {self.expr()}")
            self.names.append(name)
            return out
        if kind == 6:
            return self.tag(f"if {self.expr()}") + body() + r.choice(["", self.tag(f"elif {self.expr()}") + body()]) + r.choice(["", self.tag("else") + body()]) + self.tag("endif")
        if kind < 9:
            target = r.choice(["i", "i", "a, b"])
            source = r.choice(["l", "ls", "rows", "mix", "d.items()", "d|dictsort", "range(3)", "le", "s", "ls|unique", self.expr(1)])
            loop = r.choice(["loop.index", "loop.first", "loop.last", "loop.length", "loop.revindex", "loop.previtem", "loop.nextitem", "loop.cycle('p', 'q')", "loop.changed(i)", "loop.index0", "loop.depth",
                             "loop.revindex0"])
            inner = "{{ " + loop + " }}" + r.choice(["", self.tag("if loop.index == 2") + self.tag(r.choice(["break", "continue"])) + self.tag("endif")])
            self.names.append("i")
            return self.tag(f"for {target} in {source}{r.choice(['', ' if ' + self.expr(1), ' if i != 1'])}") + inner + body() + r.choice(["", self.tag("else") + body()]) + self.tag("endfor")
        if kind == 9:
            return (self.tag("set ns = namespace(c=0, t='')") + self.tag(f"for i in {r.choice(['l', 'ls', 'rows'])}") + self.tag("set ns.c = ns.c + 1") +
                    self.tag(f"set ns.t = ns.t ~ {self.expr(1)}") + self.tag("endfor") + "{{ ns.c }}{{ ns.t }}")
        if kind == 10:
            args = r.choice(["1", "1, 2", "a=s", "u, b=l", "", "1, 2, 3", "zz=1", "*l", "**d"])
            extra = r.choice(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller is defined }}"])
            return self.tag("macro m(a, b='B')") + "[{{ a }}|{{ b }}" + extra + "]" + self.tag("endmacro") + "{{ m(" + args + ") }}" + r.choice(["", "{{ m(1)|upper }}", "{{ m }}"])
        if kind == 11:
            return self.tag("macro w(p)") + "<{{ caller(p) }}>" + self.tag("endmacro") + self.tag("call(q) w(" + self.expr(1) + ")") + "{{ q }}" + body() + self.tag("endcall")
        if kind == 12:
            return self.tag("filter " + r.choice(["upper", "trim", "replace('a', 'b')", "indent(2)", "length|string"])) + body() + self.tag("endfilter")
        if kind == 13:
            return self.tag("set blk" + r.choice(["", " | trim", " | upper"])) + body() + self.tag("endset") + "{{ blk|length }}{{ blk }}"
        if kind == 14:
            return self.tag(f"with x = {self.expr(1)}, y = 2") + "{{ x }}" + body() + self.tag("endwith")
        return r.choice(["{#" + r.choice(["", "-"]) + " c " + r.choice(["", "-"]) + "#}", self.tag("raw") + " {{ x }} " + self.tag("endraw"), self.tag("generation") + body() + self.tag("endgeneration"),
                         self.tag("for i in [[1, [2]], [3]] recursive") + "{{ i if i is number else loop(i) }}" + self.tag("endfor")])

    def block(self, depth=0):
        return "".join(self.text() + self.statement(depth) for _ in range(self.r.randrange(1, 3))) + self.text()


def requests(count, seed):
    for index in range(count):
        generator = Generator(f"{seed}/{index}")
        template = generator.output() if index % 2 else generator.block()
        yield {"template": template, "extra": DATA, "now": 1767139200}
