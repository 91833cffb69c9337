// Operators, as Python and jinja2 define them. Contract: tools/data/chat/value.h.
#include <cmath>

#include "tools/data/chat/functions.h"
#include "tools/data/chat/python_text.h"
#include "tools/data/tokenizer/characters.h"

namespace fsdp::data::jinja {
namespace {

[[noreturn]] void fail_operands(std::string_view sign, const Value& a, const Value& b) {
  check_defined(a);
  check_defined(b);
  if (sign == "+" && (a.text() || a.object<Sequence>())) {
    fault("can only concatenate {} (not \"{}\") to {}", type_name(a), type_name(b), type_name(a));
  }
  fault("unsupported operand type(s) for {}: '{}' and '{}'", sign, type_name(a), type_name(b));
}

// The results of the compiler's checked operations, which say whether they overflowed.
Value checked(bool overflowed, const int64_t& result) {
  if (overflowed) fault("a whole number of more than 64 bits");
  return result;
}

const Sequence* list_of(const Value& value) {  // null where it is neither a list nor a tuple
  const auto* sequence = value.object<Sequence>();
  return sequence && sequence->is_list() ? sequence : nullptr;
}

// One of both texts is of the filter safe: the other one is escaped.
Value add_escaped(const Value& a, const Value& b) {
  auto out = std::make_shared<Text>(Text{"", true});
  for (const Text* side : {a.text(), b.text()}) {
    append_text(*out, side->markup ? *side : Text{escape_html(side->bytes)});
  }
  return out;
}

Value repeat(const Value& value, int64_t count, Budget& budget) {
  const auto* list = list_of(value);
  const size_t size = list ? list->items.size() : value.bytes().size();
  const size_t most = list ? kMostItems : kMostBytes;
  if (size == 0) return value;
  if (count > 0 && static_cast<uint64_t>(count) > most / size) {
    fault("the result of * has more than {} {}", most, list ? "items" : "bytes");
  }
  std::string bytes;
  std::vector<Value> items;
  for (; count > 0; --count) {
    budget.work_on(size);
    if (list) items.insert(items.end(), list->items.begin(), list->items.end());
    if (!list) bytes += value.bytes();
  }
  if (list) return make_sequence(std::move(items), list->kind);
  return make_text(std::move(bytes), value.text()->markup);
}

Value missing(const Value& of, const std::string* name) { return Undefined{type_name(of), name}; }

// Elements of a slice: `count` from `start` on, `step` apart.
struct Range {
  int64_t start, step, count;
};

// Python's rule for a slice of `size` elements (PySlice_AdjustIndices).
Range slice_range(const std::array<Value, 3>& parts, int64_t size) {
  for (const Value& part : parts) {
    if (!part.is_none() && !part.is_whole()) fault("slice indices must be integers or None");
  }
  int64_t step = parts[2].is_none() ? 1 : parts[2].whole();
  if (step == 0) fault("slice step cannot be zero");
  step = std::clamp(step, -size - 1, size + 1);
  const bool back = step < 0;
  const auto adjusted = [&](const Value& part, int64_t otherwise) {
    if (part.is_none()) return otherwise;
    const int64_t at = part.whole();
    return at < 0 ? std::max<int64_t>(at + size, back ? -1 : 0)
                  : std::min(at, back ? size - 1 : size);
  };
  const int64_t start = adjusted(parts[0], back ? size - 1 : 0);
  const int64_t distance = adjusted(parts[1], back ? -1 : size) - start;
  const bool empty = back ? distance >= 0 : distance <= 0;
  return {start, step, empty ? 0 : (distance - (back ? -1 : 1)) / step + 1};
}

Value slice_text(const Value& text, const Range& range) {
  const std::string_view bytes = text.bytes();
  if (range.step == 1) {
    const size_t begin = byte_of(bytes, static_cast<size_t>(range.start));
    const std::string_view rest = bytes.substr(begin);
    return part_of(text, rest.substr(0, byte_of(rest, static_cast<size_t>(range.count))));
  }
  std::vector<uint32_t> begins;
  for (size_t i = 0; i < bytes.size(); i += character_length(bytes[i])) {
    begins.push_back(static_cast<uint32_t>(i));
  }
  std::string out;
  for (int64_t i = 0; i < range.count; ++i) {
    const size_t begin = begins[static_cast<size_t>(range.start + i * range.step)];
    out += bytes.substr(begin, character_length(bytes[begin]));
  }
  return make_text(std::move(out), text.text()->markup);
}

// The element or character at `index`, which counts from the end if it is negative.
Value element(const Value& of, int64_t index, const std::string* name) {
  const int64_t count = length(of);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return missing(of, name);
  if (of.text()) return slice_text(of, {index, 1, 1});
  return of.object<Sequence>()->items[static_cast<size_t>(index)];
}

Value loop_attribute(LoopState& loop, std::string_view name) {
  static const std::string kNext = "nextitem", kPrevious = "previtem";
  if (name == "index0") return loop.index0;
  if (name == "index") return loop.index0 + 1;
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return !loop.peek();
  if (name == kNext) return loop.peek() ? loop.next : Undefined{"loop", &kNext};
  if (name == kPrevious) return loop.index0 > 0 ? loop.previous : Undefined{"loop", &kPrevious};
  fault("loop.{} is not known", name);
}

}  // namespace

Value add(Value a, const Value& b, Budget& budget) {
  if (a.is_whole() && b.is_whole()) {
    int64_t out = 0;
    return checked(__builtin_add_overflow(a.whole(), b.whole(), &out), out);
  }
  if (a.is_number() && b.is_number()) return a.number() + b.number();
  if (a.text() && b.text()) {
    budget.work_on(b.bytes().size());
    if (a.text()->markup || b.text()->markup) return add_escaped(a, b);
    Value out = std::move(a);
    if (!out.own_text()) {
      budget.work_on(out.bytes().size());
      out = std::make_shared<Text>(*out.text());
    }
    append_text(*out.text(), *b.text());
    return out;
  }
  const Sequence *list = list_of(a), *other = list_of(b);
  if (!list || !other || list->kind != other->kind) fail_operands("+", a, b);
  std::vector<Value> items = list->items;
  items.insert(items.end(), other->items.begin(), other->items.end());
  budget.work_on(items.size());
  return make_sequence(std::move(items), list->kind);
}

Value subtract(Value a, const Value& b, Budget&) {
  int64_t out = 0;
  if (!a.is_number() || !b.is_number()) fail_operands("-", a, b);
  if (!a.is_whole() || !b.is_whole()) return a.number() - b.number();
  return checked(__builtin_sub_overflow(a.whole(), b.whole(), &out), out);
}

Value multiply(Value a, const Value& b, Budget& budget) {
  if (a.is_whole() && b.is_whole()) {
    int64_t out = 0;
    return checked(__builtin_mul_overflow(a.whole(), b.whole(), &out), out);
  }
  if (a.is_number() && b.is_number()) return a.number() * b.number();
  if ((a.text() || list_of(a)) && b.is_whole()) return repeat(a, b.whole(), budget);
  if ((b.text() || list_of(b)) && a.is_whole()) return repeat(b, a.whole(), budget);
  fail_operands("*", a, b);
}

Value modulo(Value a, const Value& b, Budget&) {
  if (a.text()) fault("% of a text is not known");
  if (!a.is_number() || !b.is_number()) fail_operands("%", a, b);
  if (b.number() == 0) fault("modulo by zero");
  if (a.is_whole() && b.is_whole()) {
    const int64_t divisor = b.whole(), rest = divisor == -1 ? 0 : a.whole() % divisor;
    return rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest;
  }
  const double divisor = b.number(), rest = std::fmod(a.number(), divisor);
  if (rest == 0) return std::copysign(0.0, divisor);
  return (rest < 0) != (divisor < 0) ? rest + divisor : rest;
}

Value negative(const Value& a) {
  int64_t out = 0;
  if (a.is_whole()) return checked(__builtin_sub_overflow(out, a.whole(), &out), out);
  if (a.is_number()) return -a.number();
  check_defined(a);
  fault("bad operand type for unary -: '{}'", type_name(a));
}

Value attribute(const Value& of, const std::string& name) {
  check_defined(of);
  if (auto* loop = of.object<LoopState>()) return loop_attribute(*loop, name);
  if (const Value method = method_of(of, name); !method.is_undefined()) return method;
  if (const auto* names = of.object<Namespace>()) {
    const auto found = names->members.find(name);
    return found == names->members.end() ? missing(of, &name) : found->second;
  }
  const auto* dict = of.object<Dict>();
  const Value* found = dict ? dict->find(name) : nullptr;
  return found ? *found : missing(of, &name);
}

Value item(const Value& of, const Value& key, const std::string* name, Budget& budget) {
  check_defined(of);
  if (const auto* dict = of.object<Dict>(); dict && is_hashable(key)) {
    if (const Value* found = dict->find(key, budget)) return *found;
  }
  const auto* sequence = of.object<Sequence>();
  const bool counted = of.text() || (sequence && sequence->kind != Sequence::Kind::kItems);
  if (counted && key.is_whole()) {
    if (of.text()) budget.work_on(of.bytes().size());
    return element(of, key.whole(), name);
  }
  if (!key.text()) return missing(of, name);
  const Value found = attribute(of, key.bytes());
  return found.is_undefined() ? missing(of, name) : found;
}

Value slice(const Value& of, const std::array<Value, 3>& parts, Budget& budget) {
  check_defined(of);
  const auto* sequence = of.object<Sequence>();
  if (!of.text() && (!sequence || sequence->kind == Sequence::Kind::kItems)) {
    fault("'{}' object is not subscriptable", type_name(of));
  }
  const Range range = slice_range(parts, length(of));
  budget.work_on(of.text() ? of.bytes().size() : sequence->items.size());
  if (of.text()) return slice_text(of, range);
  std::vector<Value> items;
  for (int64_t i = 0; i < range.count; ++i) {
    items.push_back(sequence->items[static_cast<size_t>(range.start + i * range.step)]);
  }
  return make_sequence(std::move(items), sequence->kind);
}

}  // namespace fsdp::data::jinja
