// Writing the configuration and its help: visitors over the list of fields.
// Contract: tools/config/config.h. The fields: config_fields.h.
#include "tools/config/config.h"
#include "tools/config/config_fields.h"
#include "tools/config/config_values.h"

namespace fsdp::config {
namespace {

class Writer {
 public:
  template <typename T>
  void field(const char* key, T& value, const char*, const OptionField& = {}) {
    text += indent_ + key + ": " + value_text(value) + "\n";
  }
  template <typename S>
  void section(const char* key, const char*, S& value) {
    text += indent_ + key + ":\n";
    indent_ += "  ";
    visit(*this, value);
    indent_.resize(indent_.size() - 2);
  }
  template <typename S>
  void list(const char* key, const char*, std::vector<S>& values) {
    text += indent_ + key + ": " + list_text(values) + "\n";
  }
  std::string text;

 private:
  std::string indent_;
};

class Help : public KeyedVisitor<Help> {
 public:
  template <typename T>
  void field(const char* key, T& value, const char* help, const OptionField& = {}) {
    text += fmt::format("  {:<32} [{}] {}", prefix_ + key, value_text(value), help);
    if constexpr (std::is_enum_v<T>) text += " (" + expected_text<T>() + ")";
    text += "\n";
  }
  template <typename S>
  void section(const char* key, const char* help, S& value) {
    text += fmt::format("{}: {}\n", prefix_ + key, help);
    KeyedVisitor::section(key, help, value);
  }
  template <typename S>
  void list(const char* key, const char* help, std::vector<S>&) {
    S one;
    section(key, help, one);
  }
  std::string text;
};

}  // namespace

std::string to_yaml(const TrainConfig& config) {
  Writer writer;
  TrainConfig copy = config;  // visitors take fields by reference
  visit(writer, copy);
  return writer.text;
}

comm::Strategy parse_strategy(const std::string& text) {
  comm::Strategy strategy{};
  FSDP_CHECK(read_text(text, strategy), "strategy: expected {}, got \"{}\"",
             expected_text<comm::Strategy>(), text);
  return strategy;
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const auto& [name, strategy] : names_of(comm::Strategy{})) names.emplace_back(name);
  return names;
}

std::string config_help() {
  Help help;
  TrainConfig defaults;
  visit(help, defaults);
  return help.text;
}

}  // namespace fsdp::config
