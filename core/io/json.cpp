// The text of JSON values, read and written by nlohmann-json. Contract: core/io/json.h.
#include "core/io/json.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/file_kind.h"
#include "core/io/json_spelling.h"
#include "core/io/odd_bytes.h"

namespace fsdp {
namespace {

using namespace std::string_view_literals;
namespace nl = nlohmann;

// Copying and printing a value recurse: one of a hundred thousand levels would exhaust the stack.
constexpr int kMostLevels = 64;

// "[json.exception.parse_error.101] parse error at line 1, column 4: syntax error while ...":
// without the number and the position.
std::string reason_of(const nl::json::exception& error) {
  const std::string text = error.what();
  const size_t column = text.find("column ");
  const size_t colon = column == std::string::npos ? std::string::npos : text.find(": ", column);
  if (colon != std::string::npos) return text.substr(colon + 2);
  const size_t number = text.find("] ");
  return number == std::string::npos ? text : text.substr(number + 2);
}

}  // namespace

// Whether the members of objects are sorted by name.
enum class Members : uint8_t { kSorted, kAsRead };

// What nlohmann's parser calls. Strict with a source: duplicate keys and too many levels are
// errors.
class JsonBuilder : public nl::json_sax<nl::json> {
 public:
  // `odd`: texts have stand-ins (odd_bytes.h).
  JsonBuilder(const std::string* source, Members members, bool odd = false,
              UseSpelling use = nullptr)
      : source_(source), members_(members), odd_(odd), use_spelling_(std::move(use)) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string& spelling) override {
    return add(use_spelling_ ? use_spelling_(spelling) : Json(value));
  }
  bool string(std::string& value) override { return add(text_of(std::move(value))); }
  bool binary(nl::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool key(std::string& name) override {
    std::get<Json::Object>(open_.back()->value_)
        .members.push_back({text_of(std::move(name)), Json()});
    return true;
  }
  bool end_object() override;
  bool end_array() override { return open_.pop_back(), true; }
  bool parse_error(size_t position, const std::string&, const nl::json::exception& error) override {
    failed_at_ = position;
    out_of_range_ = dynamic_cast<const nl::json::parse_error*>(&error) == nullptr;
    reason_ = reason_of(error);
    return false;
  }

  size_t failed_at() const { return failed_at_; }      // the number of bytes read
  bool out_of_range() const { return out_of_range_; }  // a number beyond double
  const std::string& reason() const { return reason_; }

 private:
  Json* place() {
    if (open_.empty()) return &root_;
    if (Json::Array* array = std::get_if<Json::Array>(&open_.back()->value_)) {
      return &array->emplace_back();
    }
    return &std::get<Json::Object>(open_.back()->value_).members.back().value;
  }
  std::string text_of(std::string text) const { return odd_ ? without_stand_ins(text) : text; }
  bool add(Json value) {
    *place() = std::move(value);
    return true;
  }
  // An element that moves when its array grows is closed by then.
  bool open(Json value) {
    FSDP_CHECK(!source_ || open_.size() < kMostLevels,
               "{}: malformed JSON: nested more than {} levels deep", *source_, kMostLevels);
    Json* opened = place();
    *opened = std::move(value);
    open_.push_back(opened);
    return true;
  }

  void check_keys(const std::deque<Json::Member>& members, bool sorted) const;

  const std::string* source_;
  Members members_;
  bool odd_;
  UseSpelling use_spelling_;
  Json root_;
  std::vector<Json*> open_;
  size_t failed_at_ = 0;
  bool out_of_range_ = false;
  std::string reason_;
};

bool JsonBuilder::end_object() {
  Json::Object& object = std::get<Json::Object>(open_.back()->value_);
  const auto before = [](const Json::Member& a, const Json::Member& b) { return a.name < b.name; };
  object.sorted = std::is_sorted(object.members.begin(), object.members.end(), before);
  if (source_) check_keys(object.members, object.sorted);
  if (source_ && !object.sorted && members_ == Members::kSorted) {
    std::stable_sort(object.members.begin(), object.members.end(), before);
    object.sorted = true;
  }
  open_.pop_back();
  return true;
}

void JsonBuilder::check_keys(const std::deque<Json::Member>& members, bool sorted) const {
  std::vector<std::string_view> names;
  for (const Json::Member& member : members) names.push_back(member.name);
  if (!sorted) std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  FSDP_CHECK(twice == names.end(), "{}: malformed JSON: duplicate key \"{}\"", *source_, *twice);
}

namespace {

bool parse_into(JsonBuilder& builder, std::string_view text) {
  return nl::json::sax_parse(text.begin(), text.end(), &builder);
}

}  // namespace

Json Json::parse(std::string_view given) {
  const bool odd = may_have_odd_bytes(given);
  const std::string text = odd ? escapes_as_stand_ins(given) : "";
  JsonBuilder builder(nullptr, Members::kAsRead, odd);
  if (!parse_into(builder, odd ? text : given))
    throw JsonError("malformed JSON: " + builder.reason());
  return builder.take();
}

Json parse_json(std::string_view text, const std::string& source) {
  const bool odd = may_have_odd_bytes(text);
  const std::string held = odd ? escapes_as_stand_ins(text) : "";
  if (odd) text = held;
  JsonBuilder builder(&source, Members::kSorted, odd);
  if (parse_into(builder, text)) return builder.take();
  const std::string other = other_kind(text, source, Wanted::kJson);
  FSDP_CHECK(other.empty(), "{}: {}", source, other);
  const bool blank = text.find_first_not_of(" \t\r\n\0"sv) == text.npos;
  FSDP_CHECK(!blank,
             "{}:1: malformed JSON: nothing is in it: a download or a copy was not complete",
             source);
  if (builder.out_of_range()) fail("{}: malformed JSON: {}", source, builder.reason());
  const size_t read = builder.failed_at();
  const size_t before = std::min(text.size(), read > 0 ? read - 1 : 0);
  const auto line = 1 + std::count(text.begin(), text.begin() + before, '\n');
  fail("{}:{}: malformed JSON: {}", source, line, builder.reason());
}

Json parse_json_line(std::string_view line, const std::string& where) {
  JsonBuilder builder(&where, Members::kSorted);
  if (parse_into(builder, line)) return builder.take();
  fail("{}: malformed JSON: {}", where, builder.reason());
}

Json parse_spelled_line(std::string_view line, const std::string& where, const UseSpelling& use) {
  JsonBuilder builder(&where, Members::kAsRead, false, use);
  if (parse_into(builder, line)) return builder.take();
  fail("{}: malformed JSON: {}", where, builder.reason());
}

Json read_json_file(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.string());
}

// ---------------------------------------------------------------------------- writing

struct JsonText {
  bool replace = false;          // what is no UTF-8 is nlohmann's to replace
  mutable bool has_odd = false;  // there are stand-ins

  std::string held(const std::string& text) const {
    if (replace || is_utf8(text)) return text;
    has_odd = true;
    return with_stand_ins(text);
  }
  nl::ordered_json operator()(std::monostate) const { return nullptr; }
  nl::ordered_json operator()(const std::string& text) const { return held(text); }
  template <typename T>
  nl::ordered_json operator()(const T& value) const {
    return value;
  }
  nl::ordered_json operator()(const Json::Array& values) const {
    nl::ordered_json out = nl::ordered_json::array();
    for (const Json& value : values) out.push_back(std::visit(*this, value.value_));
    return out;
  }
  nl::ordered_json operator()(const Json::Object& object) const {
    nl::ordered_json out = nl::ordered_json::object();
    auto& members = out.get_ref<nl::ordered_json::object_t&>();
    for (const Json::Member& member : object.members) {
      members.emplace_back(held(member.name), std::visit(*this, member.value.value_));
    }
    return out;
  }
};

std::string Json::dump(const DumpOptions& options) const {
  using Handler = nl::ordered_json::error_handler_t;
  const JsonText text = {.replace = options.replace};
  try {
    const std::string out = std::visit(text, value_)
                                .dump(options.indent, ' ', options.ascii && !text.has_odd,
                                      options.replace ? Handler::replace : Handler::strict);
    return text.has_odd ? stand_ins_as_escapes(out) : out;
  } catch (const nl::json::exception& error) {
    throw JsonError(reason_of(error));
  }
}

void write_json_file(const std::filesystem::path& path, const Json& value) {
  write_file_atomically(path, value.dump({.indent = 2}) + "\n");
}

}  // namespace fsdp
