// The engine itself: features, load errors, limits, provenance of each operation.
#include <thread>

#include "chat_test_support.h"

namespace pocketlm::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

RenderedPrompt MustRender(const std::string& source, const Json& extra) {
  auto parsed = ChatTemplate::Parse(source);
  EXPECT_OK(parsed);
  RenderInput input;
  input.messages = Json::array();
  input.extra = extra;
  auto prompt = parsed->Render(input);
  EXPECT_OK(prompt);
  return prompt.ok() ? *prompt : RenderedPrompt();
}

std::string MarkedRender(const std::string& source, const Json& extra) {
  return Marked(MustRender(source, extra));
}

TEST(Engine, WhitespaceControl) {
  EXPECT_EQ(RenderOrError("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(RenderOrError("a \n {%- if true -%} \n b {%- endif +%}\nc"), "ab\nc");
  EXPECT_EQ(RenderOrError("  {%+ if true %}x{% endif %}"), "  x");
  EXPECT_EQ(RenderOrError("a {#- c -#} b {# d #}\ne"), "ab e");
  EXPECT_EQ(RenderOrError("{% raw %}{{ x }}{% endraw %}\n{{ 1 -}} \n y"), "{{ x }}1y");
  EXPECT_EQ(RenderOrError("a\r\nb\rc\r\n"), "a\nb\nc");
}

TEST(Engine, PythonForms) {
  EXPECT_EQ(RenderOrError("{{ [1, 1.0, 1e16, 1e-5, true, none, 'a\\'b', ('x',), {'k': 2}] }}"),
            "[1, 1.0, 1e+16, 1e-05, True, None, \"a'b\", ('x',), {'k': 2}]");
  EXPECT_EQ(RenderOrError(
                "{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1 if 0 }}"),
            "-4 2 3.5 1024 0.5 ");
  EXPECT_EQ(RenderOrError("{{ 'abc'[::-1] }} {{ '世界'[1] }} {{ [1,2,3][-2:] }} {{ "
                          "'%05.1f|%-4s|%x' % (2.25, 'a', 255) }}"),
            "cba 界 [2, 3] 002.2|a   |ff");
  EXPECT_EQ(
      RenderOrError(
          "{{ 'ΑΣ ß ŉ'|lower }} {{ 'straße'|upper }} {{ 'o\\'neil'|title }} {{ 'ǆ'.title() }}"),
      "ας ß ŉ STRASSE O'neil ǅ");
  EXPECT_EQ(RenderOrError("{{ big }} {{ big + 1 }}", {{"big", 18446744073709551615ull}}),
            "18446744073709551615 18446744073709551616");
}

// Field case TPL-D2: what templates use is there …
TEST(Engine, TplD2Features) {
  const Json rows = {
      {"rows",
       {{{"role", "user"}, {"n", 1}}, {{"role", "tool"}, {"n", 2}}, {{"role", "user"}, {"n", 3}}}}};
  EXPECT_EQ(RenderOrError("{{ strftime_now('%Y-%m-%d %B') }}"), "2025-12-31 December");
  EXPECT_EQ(RenderOrError(
                "{{ rows|rejectattr('role', 'equalto', 'tool')|map(attribute='n')|list }}", rows),
            "[1, 3]");
  EXPECT_EQ(RenderOrError("{% set ns = namespace(c=0) %}{% for r in rows %}{% set ns.c = ns.c + "
                          "r.n %}{% endfor %}{{ ns.c }}",
                          rows),
            "6");
  EXPECT_EQ(RenderOrError("{% for r in rows %}{{ loop.previtem.n if loop.previtem is defined else "
                          "'-' }}{{ loop.nextitem.n if not loop.last }}{% endfor %}",
                          rows),
            "-2132");
  EXPECT_EQ(RenderOrError("{% for r in rows[1:][::-1] %}{{ r.n }}{% endfor %}", rows), "32");
  EXPECT_EQ(
      RenderOrError(
          "{% for r in rows %}{% if r.n == 2 %}{% continue %}{% endif %}{{ r.n }}{% endfor %}",
          rows),
      "13");
  EXPECT_EQ(RenderOrError("{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}"), "1");
}

// … and what is not there is an error of Parse with line and name.
TEST(Engine, TplD2LoadErrors) {
  const std::pair<const char*, const char*> cases[] = {
      {"\n{{ x|from_json }}", "unsupported: chat template, line 2: unknown filter 'from_json'"},
      {"\n\n{% if x is odder %}{% endif %}",
       "unsupported: chat template, line 3: unknown test 'odder'"},
      {"{{ now_in('x') }}", "unsupported: chat template, line 1: unknown function 'now_in'"},
      {"{% if false %}\n{{ f() }}{% endif %}",
       "unsupported: chat template, line 2: unknown function 'f'"},
      {"{{ messages.push(1) }}", "unsupported: chat template, line 1: unknown method 'push'"},
      {"{% include 'x' %}", "unsupported: chat template, line 1: tag 'include' is not supported"},
      {"{% frob %}", "unsupported: chat template, line 1: unknown tag 'frob'"},
      {"{{ l|map('frob')|list }}", "unsupported: chat template, line 1: unknown filter 'frob'"},
      {"{{ l|selectattr('a', 'frob')|list }}",
       "unsupported: chat template, line 1: unknown test 'frob'"},
      {"{% for %}", "data_error: chat template, line 1: expected a name to assign to"},
      {"{% if x %}", "data_error: chat template, line 1: unexpected end of template"},
      {"a\n{{ 'x }}", "data_error: chat template, line 2: unexpected character '''"},
      {"{{ (1] }}", "data_error: chat template, line 1: unexpected ']'"},
      {"{# x", "data_error: chat template, line 1: missing end of comment tag"},
      {"{{ 1 }", "data_error: chat template, line 1: unexpected '}'"},
      {"{{ \"\\N{DASH}\" }}", "unsupported: chat template, line 1: \\N{...}"},
  };
  for (const auto& [source, message] : cases) {
    const auto parsed = ChatTemplate::Parse(source);
    ASSERT_FALSE(parsed.ok()) << source;
    EXPECT_THAT(ErrorText(parsed), StartsWith(message)) << source;
  }
  EXPECT_THAT(ErrorText(ChatTemplate::Parse("\xff")), HasSubstr("not valid UTF-8"));
}

TEST(Engine, RenderErrorsHaveCodeAndLine) {
  EXPECT_EQ(RenderOrError("\n{{ raise_exception('no ' ~ 'way') }}"),
            "invalid_argument: chat template, line 2: no way");
  EXPECT_EQ(RenderOrError("\n\n{{ x.y }}"), "data_error: chat template, line 3: 'x' is undefined");
  EXPECT_EQ(RenderOrError("{{ 'a' + 1 }}"),
            "data_error: chat template, line 1: unsupported operand types for +: 'str' and 'int'");
  EXPECT_EQ(
      RenderOrError("{% set _ = l.append(1) %}", {{"l", {1}}}),
      "data_error: chat template, line 1: access to attribute 'append' of 'list' object is unsafe");
  EXPECT_EQ(RenderOrError("{{ ''.__class__.__mro__ }}"),
            "data_error: chat template, line 1: 'str object' has no attribute '__class__'");
  EXPECT_THAT(RenderOrError("{{ x }}", Json::parse(R"({"messages": 1})")),
              HasSubstr("extra: 'messages' has a field of its own"));
}

// jinja2 decides at compile time which names of a block are local.
TEST(Engine, AssignedNamesHideVariables) {
  const Json data = {{"x", "data"}, {"l", {1, 2}}};
  EXPECT_EQ(RenderOrError("{% macro m() %}[{{ x }}]{% endmacro %}{{ m() }}{% set x = 1 %}{{ m() }}",
                          data),
            "[][1]");
  EXPECT_EQ(
      RenderOrError("{{ x }}{% macro m() %}[{{ x }}]{% endmacro %}{{ m() }}{% set x = 1 %}", data),
      "data[data]");
  EXPECT_EQ(RenderOrError("{% if false %}{% set x = 1 %}{% endif %}{{ x }}", data), "data");
  EXPECT_EQ(RenderOrError("{% for i in l %}{% filter upper %}{{ x }}{% endfilter %}{% set x = i "
                          "%}{{ x }}{% endfor %}{{ x }}",
                          data),
            "DATA1DATA2data");
  EXPECT_EQ(RenderOrError("{% for i in l %}{% set x = x ~ i %}{{ x }} {% endfor %}", data),
            "data1 data2 ");
}

TEST(Engine, SyntaxDepthIsBounded) {
  const auto repeat = [](const std::string& s, size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += s;
    return out;
  };
  constexpr size_t kN = 10000;
  const std::string sources[] = {
      "{{ " + repeat("(", kN) + "1" + repeat(")", kN) + " }}",
      "{{ " + repeat("[", kN) + repeat("]", kN) + " }}",
      "{{ " + repeat("{'a':", kN) + "1" + repeat("}", kN) + " }}",
      "{{ " + repeat("not ", kN) + "1 }}",
      "{{ " + repeat("-", kN) + "1 }}",
      "{{ 1" + repeat("|string", kN) + " }}",
      "{{ x" + repeat(".a", kN) + " }}",
      "{{ x" + repeat("[0]", kN) + " }}",
      "{{ range" + repeat("(1)", kN) + " }}",
      "{{ 1" + repeat(" + 1", kN) + " }}",
      "{{ 1" + repeat(" if 1 else 1", kN) + " }}",
      "{{ 1" + repeat(" ** 1", kN) + " }}",
      "{{ 1" + repeat(" and 1", kN) + " }}",
      "{{ 1 is eq " + repeat("(1 is eq ", kN) + "1" + repeat(")", kN) + " }}",
      repeat("{% if 1 %}", kN) + repeat("{% endif %}", kN),
      repeat("{% for i in [1] %}", kN) + repeat("{% endfor %}", kN),
      repeat("{% macro m() %}", kN) + repeat("{% endmacro %}", kN),
      "{% for " + repeat("(", kN) + "a" + repeat(")", kN) + " in x %}{% endfor %}",
  };
  for (const auto& source : sources) {
    const auto parsed = ChatTemplate::Parse(source);
    ASSERT_FALSE(parsed.ok()) << source.substr(0, 40);
    EXPECT_EQ(parsed.status().code(), StatusCode::kUnsupported)
        << source.substr(0, 40) << ErrorText(parsed);
    EXPECT_THAT(ErrorText(parsed), HasSubstr("nested too deeply"));
  }
  // Long but flat is fine.
  EXPECT_EQ(RenderOrError("{{ 'a'" + repeat(" ~ 'a'", kN) + " }}"), repeat("a", kN + 1));
  EXPECT_EQ(RenderOrError("{% if 0 %}" + repeat("{% elif 0 %}", kN) + "{% else %}x{% endif %}"),
            "x");
}

TEST(Engine, RunawayTemplatesFailCleanly) {
  const char* const sources[] = {
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(x) %}{% call m(x) %}{{ caller() }}{% endcall %}{% endmacro %}{{ m(1) }}",
      "{% for i in range(1000000000) %}x{% endfor %}",
      "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
      "{{ 'a' * 1000000000000 }}",
      "{{ [0] * 1000000000000 }}",
      "{{ 10 ** 10 ** 10 }}",
      "{{ '%999999999999d' % 1 }}",
      "{{ '{:999999999999}'.format(1) }}",
      "{{ 'a'.center(999999999999) }}",
      "{{ 'x'|indent(999999999999, true) }}",
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor %}",
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s|replace('', "
      "ns.s) %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor "
      "%}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(150) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(150) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}{{ ns.l|tojson }}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(150) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}{{ ns.l == [ns.l[0], ns.l[1]] and ns.l|unique|list }}",
      "{% set ns = namespace(g=[1]) %}{% for i in range(9999) %}{% set ns.g = ns.g|map('string') "
      "%}{% endfor %}{{ ns.g|list }}",
      "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
      "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% set x %}{% for i in range(99999) %}{{ '%9999s' % i }}{% endfor %}{% endset %}",
      "{% for i in range(99999) %}{{ '%9999s' % i }}{% endfor %}",
      "{{ range(99999)|map('string')|map('center', 99999)|list }}",
  };
  for (const char* source : sources) {
    const std::string text = RenderOrError(source);
    EXPECT_TRUE(text.rfind("unsupported: ", 0) == 0 || text.rfind("data_error: ", 0) == 0)
        << source << " -> " << text.substr(0, 80);
  }
}

TEST(Engine, CyclesAreFreed) {
  // Leak checkers see what stays behind.
  EXPECT_EQ(RenderOrError("{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = [ns] %}x"),
            "x");
  EXPECT_EQ(RenderOrError("{% macro m() %}{% endmacro %}{% for i in [1] %}{% macro n() %}{% "
                          "endmacro %}{% endfor %}x"),
            "x");
  EXPECT_EQ(RenderOrError("{% for i in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}"),
            "TrueFalse");
  EXPECT_EQ(RenderOrError("{% set ns = namespace() %}{% macro m() %}{% set ns.c = caller %}{{ "
                          "caller() }}{% endmacro %}{% call m() %}x{% endcall %}"),
            "x");
}

TEST(Engine, LimitsOfTheCaller) {
  auto parsed = ChatTemplate::Parse("{% for m in messages %}{{ m.content }}{% endfor %}");
  ASSERT_OK(parsed);
  RenderInput input;
  for (int i = 0; i < 100; ++i)
    input.messages.push_back({{"role", "user"}, {"content", std::string(100, 'a')}});
  EXPECT_OK(parsed->Render(input));
  input.limits.max_output_bytes = 9999;
  EXPECT_THAT(ErrorText(parsed->Render(input)), HasSubstr("too long"));
  input.limits = RenderLimits();
  input.limits.max_steps = 100;
  EXPECT_THAT(ErrorText(parsed->Render(input)), HasSubstr("too many steps"));
  input.limits = RenderLimits();
  input.limits.max_live_bytes = 5000;
  EXPECT_THAT(ErrorText(parsed->Render(input)), HasSubstr("too much memory"));
  input.limits = RenderLimits();
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({std::move(deep)});
  input.extra["deep"] = std::move(deep);
  EXPECT_THAT(ErrorText(parsed->Render(input)), HasSubstr("nested too deeply"));
}

TEST(Provenance, EveryOperationKeepsIt) {
  const Json data = {{"s", "ab cd"}, {"n", 5},    {"l", {"x", "y"}}, {"d", {{"k", "v"}}},
                     {"e", ""},      {"b", true}, {"f", "%s!"}};
  const std::pair<const char*, const char*> cases[] = {
      {"<{{ s }}>", "<«ab cd»>"},
      {"{{ '<' + s + '>' }}", "<«ab cd»>"},
      {"{{ '<' ~ n ~ '>' ~ b }}", "<«5»>«True»"},
      {"{{ n + 1 }}{{ -n }}{{ n / 2 }}{{ 1 + 1 }}", "«6-52.5»2"},
      {"{{ s[0] }}|{{ s[::-1] }}|{{ (s ~ '>')[3:] }}", "«a»|«dc ba»|«cd»>"},
      {"{{ s.split(' ')[1] }}|{{ s.split()|join('-') }}", "«cd»|«ab»-«cd»"},
      {"{{ s.upper() }}|{{ ('<' ~ s)|title }}", "«AB CD»|<«Ab Cd»"},
      {"{{ s.replace('b', '#') }}|{{ '<#>'|replace('#', s) }}", "«a»#« cd»|<«ab cd»>"},
      {"{{ s|replace(' ', e) }}", "«abcd»"},
      {"{{ ('  ' ~ s ~ ' ')|trim }}", "«ab cd»"},
      {"{{ '%s:%d' % (s, n) }}|{{ '{}{}'.format('a', s) }}", "«ab cd»:«5»|a«ab cd»"},
      {"{{ f % 'x' }}", "x«!»"},
      {"{{ l }}|{{ ['a'] }}|{{ ['a', s] }}", "«['x', 'y']»|['a']|«['a', 'ab cd']»"},
      {"{{ d|tojson }}|{{ {'a': 1}|tojson }}|{{ {'a': n}|tojson }}",
       "«{\"k\": \"v\"}»|{\"a\": 1}|«{\"a\": 5}»"},
      {"{{ l|tojson(indent=1) }}", "«[\n \"x\",\n \"y\"\n]»"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "«k»=«v»"},
      {"{% for c in s %}{{ c }}.{% endfor %}", "«a».«b».« ».«c».«d»."},
      {"{% set x %}[{{ s }}]{% endset %}{{ x|upper }}", "[«AB CD»]"},
      {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(s) }}", "<«ab cd»>"},
      {"{% filter upper %}<{{ s }}x>{% endfilter %}", "<«AB CD»X>"},
      {"{{ s|default('q') }}{{ zz|default('q') }}{{ e|default('q', true) }}", "«ab cd»qq"},
      {"{{ s|length }}{{ l|length }}{{ s == 'ab cd' }}", "52True"},
      {"{{ (s ~ '\\nx')|indent(2) }}", "«ab cd»\n  x"},
      {"{{ s.center(9, '*') }}", "**«ab cd»**"},
      {"{{ l|first }}{{ l|last }}{{ l|sort|join }}{{ l|map('upper')|join(',') }}", "«xyxyX»,«Y»"},
      {"{{ s|int(7) }}{{ '5'|int }}{{ n|string }}{{ n|float }}", "75«55.0»"},
      {"{{ s.partition(' ')[1] }}{{ s|e }}{{ '<'|e }}", "« ab cd»&lt;"},
      {"{{ e }}{{ '' }}", ""},
      {"{{ messages ~ tools }}", "«[]None»"},
      {"{{ bos_token is defined }}{{ add_generation_prompt }}", "FalseTrue"},
  };
  for (const auto& [source, want] : cases) EXPECT_EQ(MarkedRender(source, data), want) << source;
}

TEST(Provenance, RangesAreSortedAndDisjoint) {
  const RenderedPrompt prompt =
      MustRender("{% for c in s %}{{ c }}{{ '' if loop.last else '-' }}{% endfor %}{{ s }}{{ s }}",
                 {{"s", "añb<|x|>"}});
  size_t last = 0;
  for (const TextRange& range : prompt.literal) {
    EXPECT_LT(range.begin, range.end);
    EXPECT_TRUE(last == 0 || range.begin > last);
    last = range.end;
  }
  EXPECT_EQ(last, prompt.text.size());
}

TEST(Engine, BosAndEosAreTrusted) {
  auto parsed = ChatTemplate::Parse("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
  ASSERT_OK(parsed);
  RenderInput input;
  input.messages = {{{"role", "user"}, {"content", "<s>"}}};
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  const auto prompt = parsed->Render(input);
  ASSERT_OK(prompt);
  EXPECT_EQ(Marked(*prompt), "<s>«<s>»</s>");
}

TEST(Engine, InvalidUtf8InDataPasses) {
  EXPECT_EQ(MarkedRender("{{ s|upper|trim }}{{ s|length }}", {{"s", "a\xff\xc3"}}), "«A\xff\xc3»3");
}

TEST(Engine, OneTemplateManyThreads) {
  auto parsed =
      ChatTemplate::Parse(ReadAll(SourceDir() + "/tests/chat/templates/Qwen-Qwen3-0.6B.jinja"));
  ASSERT_OK(parsed);
  RenderInput input;
  input.messages = {{{"role", "user"}, {"content", "hi"}}};
  const std::string want = parsed->Render(input)->text;
  std::vector<std::string> got(4);
  std::vector<std::thread> threads;
  for (auto& out : got) {
    threads.emplace_back([&out, &parsed, &input] {
      for (int i = 0; i < 20; ++i) out = parsed->Render(input)->text;
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& out : got) EXPECT_EQ(out, want);
}

}  // namespace
}  // namespace pocketlm::testing
