// Contract: tools/data/chat/value.h.
#include "tools/data/chat/value.h"

#include <limits>

#include "tools/data/tokenizer/characters.h"

namespace fsdp::data::jinja {
namespace {

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.members.size() != b.members.size()) return false;
  return std::all_of(a.members.begin(), a.members.end(), [&](const auto& member) {
    const Value* other = b.find(member.first, budget);
    return other && equal(member.second, *other, budget);
  });
}

}  // namespace

int Value::depth() const {
  return std::visit(
      [](const auto& value) {
        if constexpr (requires { value->depth; }) return value->depth;
        return 0;
      },
      value_);
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name.text() && name.bytes() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  budget.work_on(members.size());
  if (key.text()) return find(key.bytes());
  if (!is_hashable(key)) fault("unhashable type: '{}'", type_name(key));
  for (const auto& [name, value] : members) {
    if (equal(name, key, budget)) return &value;
  }
  return nullptr;
}

bool LoopState::peek() {
  if (!std::exchange(peeked, true)) has_next = pull && pull(next);
  return has_next;
}

bool LoopState::advance() {
  if (!peek()) return false;
  previous = std::exchange(current, std::exchange(next, Value()));
  peeked = false;
  ++index0;
  return true;
}

// ---- making values -----------------------------------------------------------------------------

int depth_around(const Value& value) {
  if (value.depth() >= kNesting) fault("values are nested more than {} levels deep", kNesting);
  return value.depth() + 1;
}

void check_size(size_t bytes) {
  if (bytes > kMostBytes) fault("a text of more than {} bytes", kMostBytes);
}

Value make_text(std::string bytes, bool markup) {
  check_size(bytes.size());
  return std::make_shared<Text>(Text{std::move(bytes), markup});
}

Value make_pair(const std::pair<Value, Value>& member) {
  return make_sequence({member.first, member.second}, Sequence::Kind::kTuple);
}

Value make_sequence(std::vector<Value> items, Sequence::Kind kind) {
  auto out = std::make_shared<Sequence>();
  out->kind = kind;
  out->hashable = kind == Sequence::Kind::kTuple || kind == Sequence::Kind::kRange;
  out->depth = 1;
  for (const Value& item : items) {
    out->depth = std::max(out->depth, depth_around(item));
    out->hashable = out->hashable && is_hashable(item);
  }
  out->items = std::move(items);
  return out;
}

Value make_dict(std::vector<std::pair<Value, Value>> members) {
  auto out = std::make_shared<Dict>();
  out->depth = 1;
  for (const auto& [key, value] : members) {
    out->depth = std::max({out->depth, depth_around(key), depth_around(value)});
  }
  out->members = std::move(members);
  return out;
}

Value make_generator(const Value& source, Next next) {
  return std::make_shared<Generator>(Generator{depth_around(source), std::move(next)});
}

Value from_json(const Json& json) {
  if (json.is_null()) return None();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string()) return std::string_view(json.text());
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number()) {
    if (json.is_number_unsigned() && json.get<int64_t>() < 0) {
      fault("a whole number above {} is not known", std::numeric_limits<int64_t>::max());
    }
    return json.get<int64_t>();
  }
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const Json& item : json) items.push_back(from_json(item));
    return make_sequence(std::move(items));
  }
  std::vector<std::pair<Value, Value>> members;
  members.reserve(json.size());
  for (const auto& [name, value] : json.items()) {
    members.emplace_back(std::string_view(name), from_json(value));
  }
  return make_dict(std::move(members));
}

// ---- questions ---------------------------------------------------------------------------------

Next iterate(Value source) {
  if (const auto* sequence = source.object<Sequence>()) {
    return [source, sequence, at = size_t{0}](Value& out) mutable {
      return at < sequence->items.size() && (out = sequence->items[at++], true);
    };
  }
  if (const auto* dict = source.object<Dict>()) {
    return [source, dict, at = size_t{0}](Value& out) mutable {
      return at < dict->members.size() && (out = dict->members[at++].first, true);
    };
  }
  if (source.text()) {
    return [source, at = size_t{0}](Value& out) mutable {
      const std::string_view rest = std::string_view(source.bytes()).substr(at);
      if (rest.empty()) return false;
      at += character_length(rest[0]);
      return out = rest.substr(0, character_length(rest[0])), true;
    };
  }
  if (auto* generator = source.object<Generator>()) {
    return [source, generator](Value& out) { return generator->next(out); };
  }
  if (!source.is_undefined()) fault("'{}' object is not iterable", type_name(source));
  return [](Value&) { return false; };
}

std::vector<Value> to_vector(const Value& source, Budget& budget) {
  std::vector<Value> out;
  const Next next = iterate(source);
  for (Value item; next(item);) {
    budget.work_on(1);
    if (out.size() == kMostItems) fault("a list of more than {} items", kMostItems);
    out.push_back(std::move(item));
  }
  return out;
}

const char* type_name(const Value& value) {
  constexpr const char* kNames[] = {"Undefined", "NoneType", "bool",      "int",
                                    "float",     "str",      "list",      "dict",
                                    "Namespace", "function", "generator", "LoopContext"};
  constexpr const char* kSequences[] = {"list", "tuple", "range", "dict_items"};
  const auto* sequence = value.object<Sequence>();
  if (sequence) return kSequences[static_cast<size_t>(sequence->kind)];
  return value.text() && value.text()->markup ? "Markup" : kNames[value.kind()];
}

bool truth(const Value& value) {
  if (value.is_number()) return value.number() != 0;
  if (value.text()) return !value.bytes().empty();
  if (const auto* sequence = value.object<Sequence>()) return !sequence->items.empty();
  if (const auto* dict = value.object<Dict>()) return !dict->members.empty();
  return !value.is_none() && !value.is_undefined();
}

int64_t length(const Value& value) {
  size_t count = 0;
  if (const auto* sequence = value.object<Sequence>()) {
    count = sequence->items.size();
  } else if (const auto* dict = value.object<Dict>()) {
    count = dict->members.size();
  } else if (value.text()) {
    count = count_characters(value.bytes());
  } else if (!value.is_undefined()) {
    fault("object of type '{}' has no len()", type_name(value));
  }
  return static_cast<int64_t>(count);
}

bool is_hashable(const Value& value) {
  const auto* sequence = value.object<Sequence>();
  return !value.object<Dict>() && (!sequence || sequence->hashable);
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.work_on(0);
  if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.kind() != b.kind()) return false;
  if (a.is_same(b)) return true;  // also both None or undefined
  if (a.text()) {
    budget.work_on(std::min(a.bytes().size(), b.bytes().size()));
    return a.bytes() == b.bytes();
  }
  if (const auto* dict = a.object<Dict>()) return equal_dicts(*dict, *b.object<Dict>(), budget);
  const auto *list = a.object<Sequence>(), *other = b.object<Sequence>();
  return list && list->kind == other->kind &&
         std::equal(list->items.begin(), list->items.end(), other->items.begin(),
                    other->items.end(),
                    [&](const Value& x, const Value& y) { return equal(x, y, budget); });
}

bool less(const Value& a, const Value& b, Budget& budget, const char* sign) {
  budget.work_on(0);
  if (a.is_whole() && b.is_whole()) return a.whole() < b.whole();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  check_defined(a);
  check_defined(b);
  if (a.text() && b.text()) {
    budget.work_on(std::min(a.bytes().size(), b.bytes().size()));
    return a.bytes() < b.bytes();
  }
  const auto *list = a.object<Sequence>(), *other = b.object<Sequence>();
  if (!list || !other || list->kind != other->kind || !list->is_list()) {
    fault("'{}' not supported between instances of '{}' and '{}'", sign, type_name(a),
          type_name(b));
  }
  for (size_t i = 0; i < std::min(list->items.size(), other->items.size()); ++i) {
    if (equal(list->items[i], other->items[i], budget)) continue;
    return less(list->items[i], other->items[i], budget, sign);
  }
  return list->items.size() < other->items.size();
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.text()) {
    budget.work_on(container.bytes().size());
    if (item.text()) return container.bytes().find(item.bytes()) != std::string::npos;
    fault("'in <string>' requires string as left operand, not {}", type_name(item));
  }
  if (const auto* dict = container.object<Dict>()) return dict->find(item, budget);
  const Next next = iterate(container);
  for (Value each; next(each);) {
    if (equal(each, item, budget)) return true;
  }
  return false;
}

void check_defined(const Value& value) {
  const auto* undefined = value.get<Undefined>();
  if (!undefined) return;
  const auto& [of, name] = *undefined;
  if (!of) fault("'{}' is undefined", name ? *name : std::string("the value of a missing else"));
  const bool none = of == std::string_view("NoneType");
  const std::string object = none ? "None" : fmt::format("{} object", of);
  if (!name) fault("{} has no such element", object);
  fault("'{}' has no attribute '{}'", object, *name);
}

// ---- texts -------------------------------------------------------------------------------------

Value part_of(const Value& text, std::string_view part) {
  const Text& whole = *text.text();
  if (part.size() == whole.bytes.size()) return text;
  const auto begin = static_cast<size_t>(part.data() - whole.bytes.data());
  auto out = std::make_shared<Text>(Text{std::string(part), whole.markup});
  for (const Mark& mark : whole.marks) {
    const size_t from = std::max(mark.begin, begin), to = std::min(mark.end, begin + part.size());
    if (from < to) out->marks.push_back({from - begin, to - begin, mark.message});
  }
  return out;
}

void append_text(Text& out, const Text& more) {
  const size_t before = out.bytes.size();
  check_size(before + more.bytes.size());
  out.bytes += more.bytes;
  for (const Mark& mark : more.marks) {
    out.marks.push_back({mark.begin + before, mark.end + before, mark.message});
  }
}

}  // namespace fsdp::data::jinja
