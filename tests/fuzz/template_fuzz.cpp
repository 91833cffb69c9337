// Fuzz target: chat templates, and rows of messages. A template that is accepted renders the same
// text twice or fails; what messages wrote lies in order within the text. A row becomes a
// conversation or an error, and its turns lie in order within the text of two templates. Each input
// is a template, a row of JSON, and bytes that choose a row.
#include "tests/fuzz/fuzz_target.h"
#include "tools/data/chat/chat_files.h"
#include "tools/data/chat/chat_text.h"
#include "tools/data/chat/conversation.h"
#include "tools/data/chat/template.h"

namespace fsdp::fuzz {

std::vector<std::string> seeds() {
  return {
      "{%- for m in messages -%}\n{{- '<|im_start|>' + m.role + '\\n' + m.content + "
      "'<|im_end|>\\n' -}}\n"
      "{%- endfor -%}\n{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif "
      "-%}\n",
      "{% set ns = namespace(n=0, all=[]) %}{% for m in messages[::-1] %}{% if loop.last and not "
      "ns.n %}"
      "{% set ns.n = loop.index0 %}{% endif %}{% set ns.all = ns.all + [ns] %}{% endfor %}{{ ns.n "
      "}}",
      "{% macro value(v, depth=0) %}{% if v is mapping %}{% for k, x in v|dictsort %}{{ k }}: "
      "{{ value(x, depth + 1) }}{% if not loop.last %}, {% endif %}{% endfor %}{% else %}{{ v }}{% "
      "endif %}"
      "{% endmacro %}{{ value(tools[0]) }}{{ value(*messages[:1], **{'depth': -1}) }}",
      "{%- generation -%}{% set b %}{% for i in range(3) %}{{ messages[i].content|trim }}{% endfor "
      "%}{% endset %}"
      "{{ (b ~ b)[1:-1]|upper }}{%- endgeneration -%}{# c -#} {{ strftime_now('%d %b %Y') }}",
      "{{ tools|tojson(indent=2) }}{{ messages|selectattr('role', 'in', "
      "['user'])|map(attribute='content')|"
      "join(', ') }}{% filter replace('a', 'b')|title %}a{% endfilter %}{{ raise_exception('x') if "
      "x else '' }}",
      "{% for m in messages if m.role != 'x' %}{% if loop.previtem is defined %}{% continue %}{% "
      "endif %}"
      "{{ m.content.split('</think>')[-1].lstrip('\\n').replace('a', '') }}{% break %}{% endfor %}",
      "{{ [1, 2.5, none, true, 'it\\'s', ('a',), {'k': -1}] }}{{ 'a' if 1 < 2 <= 3 else 7 % -3 * 2 "
      "}}"
      "{{ '12'|int }}{{ 'a\\nb'|indent(2, true) }}{{ ['a', 'A']|unique|list }}{{ "
      "d.items()|list|length }}",
      R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"a é"},)"
      R"({"role":"assistant","content":"<think>x</think>y","weight":0},)"
      R"({"role":"assistant","content":[{"type":"text","text":"<|im_end|>"}]}]})",
      R"({"messages":[{"role":"user","content":"w"},)"
      R"({"role":"assistant","content":null,"reasoning_content":"r","tool_calls":)"
      R"([{"id":"1","function":{"name":"f","arguments":{"a":1.5,"b":[null]}}}]},)"
      R"({"role":"tool","content":"18"},{"role":"assistant","content":"z","train":true}],)"
      R"("tools":[{"name":"f"}],"chat_template_kwargs":{"enable_thinking":false}})",
      R"({"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"},)"
      R"({"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{}}"},)"
      R"({"from":"observation","value":"c"}],"documents":[{"title":"t"}]})",
      R"({"prompt":"2+2=","completion":"4"})",
      R"({"prompt":[{"role":"user","content":"a"}],)"
      R"("completion":[{"role":"assistant","content":"b"}]})"};
}

namespace {

void render(const data::ChatTemplate& parsed, const Json& messages, const Json& tools) {
  data::RenderInput input;
  input.messages = {&messages.front(), messages.size()};
  input.tools = &tools;
  input.clock.emplace();
  input.most_steps = 20000;
  data::Rendering first;
  const bool works = accepts([&] { first = parsed.render(input); });
  if (!works) return;
  require(parsed.render(input).text == first.text);
  size_t at = 0;
  for (const auto& [message, bytes] : first.written) {
    require(message < messages.size() && at <= bytes.begin && bytes.begin < bytes.end);
    at = bytes.end;
  }
  require(at <= first.text.size());
  for (const auto& [begin, end] : first.generation)
    require(begin < end && end <= first.text.size());
}

// Does with a message what most templates do; the seeds of templates have other kinds.
const data::ChatFormat& rich_format() {
  static const data::ChatFormat format(
      {.source =
           "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
           "<{{ m.role }}>{% if m.role == 'assistant' %}{% if loop.last and m.reasoning_content %}"
           "<think>{{ m.reasoning_content }}</think>{% elif enable_thinking is false %}<think>"
           "</think>{% endif %}{{ (m.content or '').split('</think>')[-1] }}"
           "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
           "{% else %}{{ m.content | trim }}{% endif %};{% endfor %}"
           "{% if add_generation_prompt %}<assistant>{% endif %}",
       .name = "rich",
       .tool_source = "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}"
                      "{{ m }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
       .special_tokens = {{"bos_token", "<s>"}},
       .date = std::tm{}});
  return format;
}

const data::ChatFormat& chatml_format() {
  static const data::ChatFormat format({.source = data::find_chat_template("chatml", "").source,
                                        .name = "chatml",
                                        .date = std::tm{}});
  return format;
}

void use_text(const data::ChatFormat& format, const data::Conversation& given) {
  const data::ChatText chat = format.text_of(given, "row");
  require(format.text_of(given, "row").text == chat.text);
  std::vector<bool> seen(given.messages.size());
  size_t at = 0;
  for (const data::ChatTurn& turn : chat.turns) {
    require(turn.message < given.messages.size());
    seen[turn.message] = true;
    require(turn.bytes.begin <= turn.bytes.end && turn.bytes.end <= chat.text.size());
    const bool is_empty = turn.bytes.begin == turn.bytes.end;
    require(at <= turn.bytes.begin || turn.is_block || is_empty);
    at = std::max(at, turn.bytes.end);
    for (const data::TurnStart& start : turn.starts) require(start.shared <= chat.text.size());
  }
  for (const bool one : seen) require(one);
}

// A row that the bytes choose, of a right form in most places.
class ChosenRow {
 public:
  explicit ChosenRow(std::string_view bytes) : bytes_(bytes) {}

  Json row() {
    Json out = Json::object();
    const std::string form = pick({"messages", "messages", "conversations", "prompt"});
    const bool plain = form == "prompt" && byte() % 2 == 0;
    out[form] = plain ? Json(text()) : messages();
    if (form == "prompt") out["completion"] = plain ? Json(text()) : messages();
    for (const char* const key : {"tools", "documents"}) {
      if (byte() % 8 == 3) out[key] = Json::array({value(0)});
    }
    if (byte() % 8 == 3) out[pick({"chat_template_kwargs", "tools", "prompt"})] = value(0);
    return out;
  }

 private:
  Json messages() {
    Json out = Json::array();
    for (int left = byte() % 6; left > 0; --left) {
      out.push_back(byte() % 64 == 3 ? value(0) : message(byte() % 2 == 0));
    }
    return out;
  }
  Json message(bool shared) {
    Json out = Json::object();
    const std::string role = shared ? pick({"human", "gpt", "function_call", "observation", "gpt"})
                                    : pick({"user", "assistant", "tool", "system", "assistant"});
    if (byte() % 8 == 3) out["weight"] = byte() % 3;
    out[shared ? "from" : "role"] = role;
    const bool is_odd = byte() % 16 == 3;
    out[shared ? "value" : "content"] = role == "function_call" ? Json(R"({"name": "f"})")
                                        : is_odd                ? value(0)
                                                                : Json(text());
    if (byte() % 8 == 3) {
      out[pick({"tool_calls", "reasoning_content", "role", "content", "name"})] = value(0);
    }
    return out;
  }
  Json value(int depth) {
    if (depth < 4 && byte() % 2 == 0) {
      if (byte() % 2 == 0) return Json::array({value(depth + 1), value(depth + 1)});
      Json out = Json::object();
      out[pick({"type", "function", "arguments", "enable_thinking"})] = value(depth + 1);
      out[pick({"text", "content", "name"})] = byte() % 2 ? Json(text()) : value(depth + 1);
      return out;
    }
    const Json kinds[] = {Json(), true, -1, 1.5, int64_t{1} << 62, text()};
    return kinds[byte() % std::size(kinds)];
  }
  std::string text() {
    return pick({"", " ", "a", "é\n", "<s>", "<think>", "</think>", "<|im_end|>", ";",
                 "<assistant>"}) +
           pick({"", "b", "\n\n", "<|im_start|>assistant\n", "</think>y", "😀", "<|im_end|>"});
  }
  std::string pick(std::initializer_list<const char*> all) {
    return all.begin()[byte() % all.size()];
  }
  unsigned byte() {
    return at_ < bytes_.size() ? static_cast<uint8_t>(bytes_[at_++]) * 37U >> 3 : 0;
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

void read_row(const Json& row) {
  data::is_conversation(row, {});
  data::Conversation given = data::conversation_of(row, "row", {});
  require(!given.messages.empty() && given.roles.size() == given.messages.size() &&
          given.trained.size() == given.messages.size());
  accepts([&] { use_text(chatml_format(), given); });
  accepts([&] { use_text(rich_format(), given); });
  const auto ends = [](std::string_view content) {
    const size_t at = content.find("<|im_end|>");
    return at == content.npos ? std::vector<data::Span>() : std::vector<data::Span>{{at, at + 10}};
  };
  data::find_special(ends, true, "row", given);
  require(given.special.size() == given.messages.size());
  accepts([&] { use_text(chatml_format(), given); });
}

}  // namespace
}  // namespace fsdp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fsdp;
  static const Json messages = Json::parse(
      R"([{"role": "system", "content": "S"}, {"role": "user", "content": "a é\n"},
          {"role": "assistant", "content": "<think>x</think>y", "tool_calls": [{"f": {"a": 1.5}}]},
          {"role": "tool", "content": null}])");
  static const Json tools =
      Json::parse(R"([{"type": "function", "function": {"name": "f", "b": [{}]}}])");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::accepts([&] { fuzz::render(data::ChatTemplate(text, "t"), messages, tools); });
  if (text.starts_with('{')) fuzz::accepts([&] { fuzz::read_row(parse_json_line(text, "row")); });
  for (size_t i = 0; i < text.size(); i += 64) {
    fuzz::accepts([&] { fuzz::read_row(fuzz::ChosenRow(text.substr(i)).row()); });
  }
  return 0;
}
