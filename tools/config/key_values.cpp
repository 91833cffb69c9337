// A visitor over the list of fields. Contract: tools/config/key_values.h.
#include "tools/config/key_values.h"

#include "tools/config/config_fields.h"
#include "tools/config/config_values.h"

namespace fsdp::config {
namespace {

class Visitor : public KeyedVisitor<Visitor> {
 public:
  template <typename T>
  void field(const char* key, T& value, const char*, const OptionField& option = {}) {
    all.emplace_back(prefix_ + key, value_text(value));
    if (option.of_rank) of_each_rank.push_back(prefix_ + key);
  }
  template <typename S>
  void list(const char* key, const char*, std::vector<S>& values) {
    all.emplace_back(prefix_ + key, list_text(values));
  }
  std::vector<std::pair<std::string, std::string>> all;
  std::vector<std::string> of_each_rank;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> key_values(const TrainConfig& config) {
  Visitor visitor;
  TrainConfig copy = config;  // visitors take fields by reference
  visit(visitor, copy);
  return visitor.all;
}

std::vector<std::string> keys_of_each_rank() {
  Visitor visitor;
  TrainConfig defaults;
  visit(visitor, defaults);
  return visitor.of_each_rank;
}

}  // namespace fsdp::config
