// The walk over the list of options. Contract: tools/config/options.h. The list: *_fields.cpp.
#include "tools/config/options.h"

#include <algorithm>

#include "core/error.h"

namespace fsdp::config {
namespace {

class Collector : public KeyedVisitor {
 public:
  void option(const char* key, Value value, const char* help, const OptionField& about) override {
    all.push_back({prefix_ + key, value, help, about});
    OnResume& on_resume = all.back().about.on_resume;
    if (on_resume == OnResume::kAsSection) on_resume = on_resume_;
  }
  void section(const char* key, const char* help, const std::function<void(Visitor&)>& inside,
               OnResume on_resume) override {
    const OnResume outer = on_resume_;
    if (on_resume != OnResume::kAsSection) on_resume_ = on_resume;
    KeyedVisitor::section(key, help, inside, on_resume);
    on_resume_ = outer;
  }
  void list(const char* key, Value value, const char* help, const OptionField& about,
            Sections& sections) override {
    Visitor::list(key, value, help, about, sections);
  }
  std::vector<Option> all;

 private:
  OnResume on_resume_ = OnResume::kRefused;
};

}  // namespace

void Visitor::list(const char* key, Value value, const char* help, const OptionField& about,
                   Sections&) {
  option(key, value, help, about);
}

void KeyedVisitor::list(const char* key, Value, const char* help, const OptionField& about,
                        Sections& sections) {
  const auto inside = [&](Visitor& visitor) { sections.visit_defaults(visitor); };
  section(key, help, inside, about.on_resume);
}

void KeyedVisitor::section(const char* key, const char*,
                           const std::function<void(Visitor&)>& inside, OnResume) {
  const std::string outer = prefix_;
  prefix_ += std::string(key) + ".";
  inside(*this);
  prefix_ = outer;
}

std::vector<Option> options(TrainConfig& config) {
  Collector collector;
  visit(collector, config);
  return std::move(collector.all);
}

std::string key_at(const TrainConfig& config, const void* member, const std::type_info& type) {
  // Visitors take fields by reference; this one changes none.
  for (const Option& option : options(const_cast<TrainConfig&>(config))) {
    if (option.value.is_at(member, type)) return option.key;
  }
  fail("[config] not a member of the configuration that is an option");
}

std::vector<KeyWithoutEffect> keys_without_effect(const TrainConfig& config) {
  TrainConfig copy = config, defaults;  // visitors take fields by reference
  const std::vector<Option> given = options(copy), usual = options(defaults);
  std::vector<KeyWithoutEffect> without;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto& [key, value, help, about] = given[i];
    const auto unmet = std::find_if(about.needs.begin(), about.needs.end(),
                                    [](const tools::Need& need) { return !need.met; });
    if (unmet == about.needs.end()) continue;
    // A file may be one that a run wrote, with all keys. Who sets a key by hand means something.
    const auto place = config.places.find(key);
    const bool by_hand = place != config.places.end() && place->second.starts_with("--") &&
                         key.starts_with("train.optimizer.");
    if (!by_hand && value.text() == usual[i].value.text()) continue;
    without.push_back({key, value.text(), unmet->without});
  }
  return without;
}

}  // namespace fsdp::config
