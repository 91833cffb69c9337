// What the readers of the two layouts of a reference folder share. Only for them: it brings JSON
// into a header. Read next: tools/verify/expected_results.cpp (layout "model"), expected_run.cpp
// ("run").
#pragma once

#include "core/io/json.h"
#include "tools/verify/expected_results.h"

namespace fsdp::tools {

// A place within a JSON file; errors name file and key.
class JsonPlace {
 public:
  JsonPlace(const Json& json, std::string file, std::string key = {})
      : json_(&json), file_(std::move(file)), key_(std::move(key)) {}

  const Json& json() const { return *json_; }
  std::string where() const { return key_.empty() ? file_ : file_ + ": " + key_; }
  bool has(const std::string& key) const { return json_->is_object() && json_->contains(key); }
  JsonPlace operator[](const std::string& key) const {
    FSDP_CHECK(has(key), "{}: {}: missing", file_, inner(key));
    return {json_->at(key), file_, inner(key)};
  }
  std::vector<JsonPlace> elements() const {
    FSDP_CHECK(json_->is_array(), "{}: expected a list", where());
    std::vector<JsonPlace> out;
    for (size_t i = 0; i < json_->size(); ++i) {
      out.emplace_back((*json_)[i], file_, fmt::format("{}[{}]", key_, i));
    }
    return out;
  }
  double number() const {
    if (json_->is_string() && json_->get<std::string>() == "inf") {
      return std::numeric_limits<double>::infinity();
    }
    if (json_->is_string() && json_->get<std::string>() == "nan") {
      return std::numeric_limits<double>::quiet_NaN();
    }
    FSDP_CHECK(json_->is_number(), "{}: expected a number, got {}", where(), json_->dump());
    return json_->get<double>();
  }
  std::string text() const {
    FSDP_CHECK(json_->is_string(), "{}: expected a string, got {}", where(), json_->dump());
    return json_->get<std::string>();
  }

 private:
  std::string inner(const std::string& key) const { return key_.empty() ? key : key_ + "." + key; }

  const Json* json_;
  std::string file_;
  std::string key_;
};

// All batches of a file: input_ids and labels (..., T), documents, padding. With `stacked` the
// first extent is the steps; everything between it and T is rows.
std::vector<Batch> read_batches(const ExpectedTensors& tensors, bool stacked,
                                const models::InputRules& rules);

// The optimizer is described in words: `expected` is the only description that this program
// follows. Throws Unsupported for any other.
void check_prose(const JsonPlace& place, const std::string& expected);

// f32, of one gradient tensor relative to its largest element; the other limits stand where they
// are used.
constexpr double kSingleGradientLimit = 5e-5;

// Reads the runs that can be repeated; Unsupported when there is none.
void read_run_layout(const JsonPlace& json, const ExpectedChoice& choice, ExpectedResults& out);

}  // namespace fsdp::tools
