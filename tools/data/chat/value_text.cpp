// Values as text. Contract: tools/data/chat/value.h.
#include <cmath>

#include "tools/data/chat/python_text.h"
#include "tools/data/chat/value.h"

namespace fsdp::data::jinja {
namespace {

// The items between brackets. With `indent` each item is on a line of its own, `level` deep.
template <typename Items, typename Write>
void append_all(std::string& out, std::string_view open, const Items& items, std::string_view close,
                const Write& write, const std::optional<std::string>& indent = {}, int level = 0) {
  const auto break_line = [&](int depth) {
    if (indent) out += '\n';
    for (; indent && depth > 0; --depth) out += *indent;
  };
  out += open;
  for (const auto& item : items) {
    if (&item != &items.front()) out += indent ? "," : ", ";
    break_line(level + 1);
    write(item);
  }
  if (!items.empty()) break_line(level);
  out += close;
}

void append_sequence(std::string& out, const Sequence& sequence, Budget& budget) {
  constexpr std::pair<const char*, const char*> kBrackets[] = {// as in Sequence::Kind
                                                               {"[", "]"},
                                                               {"(", ")"},
                                                               {"", ""},
                                                               {"dict_items([", "])"}};
  if (sequence.kind == Sequence::Kind::kRange) fault("the text of a range is not known");
  const auto [open, close] = kBrackets[static_cast<size_t>(sequence.kind)];
  const bool single = sequence.kind == Sequence::Kind::kTuple && sequence.items.size() == 1;
  append_all(out, open, sequence.items, single ? ",)" : close,
             [&](const Value& item) { append_repr(out, item, budget); });
}

}  // namespace

void append_repr(std::string& out, const Value& value, Budget& budget) {
  budget.work_on(1);
  check_size(out.size());
  if (const bool* flag = value.get<bool>()) {
    out += *flag ? "True" : "False";
  } else if (const int64_t* whole = value.get<int64_t>()) {
    out += std::to_string(*whole);
  } else if (const double* number = value.get<double>()) {
    append_repr(out, *number);
  } else if (const auto* text = value.object<Text>()) {
    if (text->markup) out += "Markup(";
    append_repr(out, text->bytes);
    if (text->markup) out += ")";
  } else if (const auto* sequence = value.object<Sequence>()) {
    append_sequence(out, *sequence, budget);
  } else if (const auto* dict = value.object<Dict>()) {
    append_all(out, "{", dict->members, "}", [&](const auto& member) {
      append_repr(out, member.first, budget);
      out += ": ";
      append_repr(out, member.second, budget);
    });
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    fault("the text of a {} is not known", type_name(value));
  }
}

void append_str(std::string& out, const Value& value, Budget& budget) {
  if (value.text()) {
    out += value.bytes();
  } else if (!value.is_undefined()) {
    append_repr(out, value, budget);
  }
  check_size(out.size());
}

Value to_text(const Value& value, Budget& budget) {
  if (value.text()) return value;
  std::string out;
  append_str(out, value, budget);
  return out;
}

void append_json(std::string& out, const Value& value, bool ascii,
                 const std::optional<std::string>& indent, Budget& budget, int level) {
  const auto write = [&](const Value& inner) {
    append_json(out, inner, ascii, indent, budget, level + 1);
  };
  const auto write_member = [&](const std::pair<Value, Value>& member) {
    const Value& key = member.first;
    if (!key.text() && !key.is_number() && !key.is_none()) {
      fault("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
    const char* const quote = key.text() ? "" : "\"";
    out += quote;
    write(key);
    (out += quote) += ": ";
    write(member.second);
  };
  budget.work_on(1);
  const auto* sequence = value.object<Sequence>();
  const double* number = value.get<double>();
  if (sequence && sequence->is_list()) {
    append_all(out, "[", sequence->items, "]", write, indent, level);
  } else if (const auto* dict = value.object<Dict>()) {
    append_all(out, "{", dict->members, "}", write_member, indent, level);
  } else if (value.text()) {
    out += Json(value.bytes()).dump({.ascii = ascii});
  } else if (value.get<bool>() || value.is_none()) {
    out += value.is_none() ? "null" : truth(value) ? "true" : "false";
  } else if (number && !std::isfinite(*number)) {
    out += std::isnan(*number) ? "NaN" : *number > 0 ? "Infinity" : "-Infinity";
  } else if (value.is_number()) {
    append_repr(out, value, budget);
  } else {
    fault("Object of type {} is not JSON serializable", type_name(value));
  }
  check_size(out.size());
}

}  // namespace fsdp::data::jinja
