// The options of the configuration as values: each with its key, its help, what the list says of it
// (tools/launch/option_field.h) and a reference to its member. The list itself: *_fields.cpp.
// For code that asks for something of every key. Not here: a configuration as text (config.h),
// and as pairs of key and value (key_values.h).
#pragma once

#include <functional>
#include <string>
#include <typeinfo>
#include <vector>

#include "tools/config/config.h"
#include "tools/launch/option_field.h"

namespace fsdp::config {

using tools::FlagOf;
using tools::MemoryChoices;
using tools::Need;
using tools::OnResume;
using tools::OptionField;

// A reference to one value of a configuration, of whatever type.
class Value {
 public:
  // What is known of a type: config_values.h.
  struct Type {
    const std::type_info& id;
    bool is_optional, is_choice, is_list;
    std::string (*text)(const void* value);
    std::string (*blank)();
    bool (*read)(const std::string& text, void* value);
    std::string (*expected)();
    std::string (*why_not)(const std::string& name);
    std::vector<std::string> (*names)();
  };
  Value(void* at, const Type& type) : at_(at), type_(&type) {}

  std::string text() const { return type_->text(at_); }  // as YAML
  std::string blank() const { return type_->blank(); }   // of the type's zero, or "auto"
  // Reads a scalar; false when the text is none of the type's.
  bool read(const std::string& text) const { return type_->read(text, at_); }
  std::string expected() const { return type_->expected(); }  // "an integer"
  // Why a name that other programs know is none of the type's; "": nothing is known about it.
  std::string why_not(const std::string& name) const { return type_->why_not(name); }
  bool is_optional() const { return type_->is_optional; }
  bool is_choice() const { return type_->is_choice; }
  bool is_list() const { return type_->is_list; }                    // of sections
  std::vector<std::string> names() const { return type_->names(); }  // of a choice, with others'

  // Null: it is of another type.
  template <typename T>
  T* as() const {
    return is_at(at_, typeid(T)) ? static_cast<T*>(at_) : nullptr;
  }
  bool is_at(const void* at, const std::type_info& type) const {
    return at_ == at && type_->id == type;
  }

 private:
  void* at_;
  const Type* type_;
};

template <typename T>
const Value::Type& type_of();  // config_values.h

class Visitor;

// A list of sections, such as fsdp.units.
class Sections {
 public:
  virtual ~Sections() = default;
  virtual void clear() = 0;
  // Appends one with defaults, and visits it. `place`: where it was written, for errors.
  virtual void add(const std::string& place, Visitor& visitor) = 0;
  virtual void visit_defaults(Visitor& visitor) = 0;
};

// Who walks the list. `key`: without the sections around it.
class Visitor {
 public:
  virtual ~Visitor() = default;
  virtual void option(const char* key, Value value, const char* help, const OptionField& about) = 0;
  virtual void section(const char* key, const char* help,
                       const std::function<void(Visitor&)>& inside, OnResume on_resume) = 0;
  // By default: one option, whose text holds the whole list.
  virtual void list(const char* key, Value value, const char* help, const OptionField& about,
                    Sections& sections);

  // The words of the list.
  template <typename T>
  void field(const char* key, T& value, const char* help, const OptionField& about = {}) {
    option(key, Value(&value, type_of<T>()), help, about);
  }
  template <typename S>
  void section(const char* key, const char* help, S& c, const TrainConfig& all,
               OnResume on_resume = OnResume::kAsSection) {
    section(
        key, help, [&](Visitor& visitor) { visit(visitor, c, all); }, on_resume);
  }
  template <typename S>
  void list(const char* key, const char* help, std::vector<S>& values,
            const OptionField& about = {}) {
    class Of : public Sections {
     public:
      explicit Of(std::vector<S>& values) : values_(values) {}
      void clear() override { values_.clear(); }
      void add(const std::string& place, Visitor& visitor) override {
        values_.emplace_back().place = place;
        visit(visitor, values_.back());
      }
      void visit_defaults(Visitor& visitor) override {
        S defaults;
        visit(visitor, defaults);
      }

     private:
      std::vector<S>& values_;
    } sections(values);
    list(key, Value(&values, type_of<std::vector<S>>()), help, about, sections);
  }
};

void visit(Visitor& visitor, TrainConfig& config);

// A visitor that names options by their whole key: inside a section, prefix_ is
// "train.optimizer.". A list is a section with the keys of an entry.
class KeyedVisitor : public Visitor {
 public:
  void section(const char* key, const char* help, const std::function<void(Visitor&)>& inside,
               OnResume on_resume) override;
  void list(const char* key, Value value, const char* help, const OptionField& about,
            Sections& sections) override;

 protected:
  std::string prefix_;
};

struct Option {
  std::string key;  // "train.optimizer.kind"
  Value value;      // of the configuration that was asked
  const char* help;
  OptionField about;  // with the section's on_resume, where the option says none
};
// All, in the order of the file.
std::vector<Option> options(TrainConfig& config);

std::string key_at(const TrainConfig& config, const void* member, const std::type_info& type);
// "train.steps" of config.train.steps.
template <typename T>
std::string key_of(const TrainConfig& config, const T& member) {
  return key_at(config, &member, typeid(T));
}

}  // namespace fsdp::config
