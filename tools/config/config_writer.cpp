// Writing the configuration and its help: visitors over the list of options.
// Contract: tools/config/config.h. The list: options.h.
#include "tools/config/config.h"
#include "tools/config/config_values.h"
#include "tools/config/options.h"

namespace fsdp::config {
namespace {

class Writer : public Visitor {
 public:
  void option(const char* key, Value value, const char*, const OptionField&) override {
    text += indent_ + key + ": " + value.text() + "\n";
  }
  void section(const char* key, const char*, const std::function<void(Visitor&)>& inside,
               OnResume) override {
    text += indent_ + key + ":\n";
    indent_ += "  ";
    inside(*this);
    indent_.resize(indent_.size() - 2);
  }
  std::string text;

 private:
  std::string indent_;
};

class Help : public KeyedVisitor {
 public:
  void option(const char* key, Value value, const char* help, const OptionField&) override {
    text += fmt::format("  {:<32} [{}] {}", prefix_ + key, value.text(), help);
    if (value.is_choice() && !value.is_optional()) text += " (" + value.expected() + ")";
    text += "\n";
  }
  void section(const char* key, const char* help, const std::function<void(Visitor&)>& inside,
               OnResume on_resume) override {
    text += fmt::format("{}: {}\n", prefix_ + key, help);
    KeyedVisitor::section(key, help, inside, on_resume);
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
