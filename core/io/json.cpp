// Strict JSON. Contract: core/io/json.h.
#include "core/io/json.h"

#include <algorithm>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/io/file.h"

namespace fsdp {
namespace {

// Copying and printing a value recurse: one of a hundred thousand levels would exhaust the stack.
constexpr int kMostLevels = 64;

// nlohmann keeps the last of two equal keys without a word; the callback sees both.
class StrictRules {
 public:
  explicit StrictRules(const std::string& source) : source_(source) {}

  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    FSDP_CHECK(!opens || depth < kMostLevels, "{}: malformed JSON: nested more than {} levels deep",
               source_, kMostLevels);
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string& key = value.get_ref<const std::string&>();
      FSDP_CHECK(keys_.back().insert(key).second, "{}: malformed JSON: duplicate key \"{}\"",
                 source_, key);
    }
    return true;
  }

 private:
  const std::string& source_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

std::string reason_of(const Json::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 4: syntax error while ..."
  const std::string text = error.what();
  const size_t column = text.find("column ");
  const size_t colon = column == std::string::npos ? std::string::npos : text.find(": ", column);
  if (colon != std::string::npos) return text.substr(colon + 2);
  const size_t number = text.find("] ");
  return number == std::string::npos ? text : text.substr(number + 2);
}

Json parse_json(std::string_view text, const std::string& source) {
  StrictRules rules(source);
  try {
    return Json::parse(text.begin(), text.end(), std::ref(rules));
  } catch (const Json::parse_error& error) {
    const size_t before = std::min(text.size(), error.byte > 0 ? error.byte - 1 : 0);
    const auto line = 1 + std::count(text.begin(), text.begin() + before, '\n');
    fail("{}:{}: malformed JSON: {}", source, line, reason_of(error));
  } catch (const Json::exception& error) {  // a number beyond double, for instance
    fail("{}: malformed JSON: {}", source, reason_of(error));
  }
}

Json read_json_file(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.string());
}

void write_json_file(const std::filesystem::path& path, const OrderedJson& value) {
  // Text that a model generated may end within a character: such bytes become U+FFFD.
  write_file_atomically(path, value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace fsdp
