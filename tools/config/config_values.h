// How one configuration value is read from YAML text and written back, by its C++ type. For the
// list of options only; who walks it has a Value (options.h).
#pragma once

#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/io/json.h"
#include "optim/optimizer_kind.h"
#include "optim/schedule.h"
#include "tools/config/config.h"
#include "tools/config/guests.h"
#include "tools/config/options.h"

namespace fsdp::config {

// The names of an enum's values, compared without regard to case. The first name of a value is the
// one written; the others are names in PyTorch and its libraries. A value without a name stands for
// all guests of its kind.
template <typename E>
using EnumNames = std::vector<std::pair<std::string_view, E>>;

// Of an enum that names its values itself; the sharding layer's have names as keys have them.
template <typename Values, typename E = typename Values::value_type>
EnumNames<E> own_names(const Values& values,
                       std::initializer_list<std::pair<std::string_view, E>> more = {}) {
  EnumNames<E> out;
  for (const E value : values) {
    if constexpr (requires { choice_name(value); }) {
      out.emplace_back(choice_name(value), value);
    } else {
      out.emplace_back(name_of(value), value);
    }
  }
  out.insert(out.end(), more);
  return out;
}

inline EnumNames<data::TextFormat> names_of(data::TextFormat) {
  EnumNames<data::TextFormat> out;
  for (const data::FormatTraits& each : data::kTextFormats)
    out.emplace_back(each.name, each.format);
  return out;
}
inline EnumNames<data::BadRows> names_of(data::BadRows) {
  return {{"fail", data::BadRows::kFail}, {"skip", data::BadRows::kSkip}};
}
inline EnumNames<data::Objective> names_of(data::Objective) { return own_names(data::kObjectives); }
inline EnumNames<data::Pack> names_of(data::Pack) { return own_names(data::kPacks); }
inline EnumNames<data::LongRows> names_of(data::LongRows) { return own_names(data::kLongRows); }
inline EnumNames<data::DocumentAttention> names_of(data::DocumentAttention) {
  return own_names(data::kDocumentAttentions);
}
inline EnumNames<data::TrainOn> names_of(data::TrainOn) { return own_names(data::kTrainOn); }
inline EnumNames<data::SpecialInContent> names_of(data::SpecialInContent) {
  return {{"as_special", data::SpecialInContent::kAsSpecial},
          {"as_text", data::SpecialInContent::kAsText}};
}
inline EnumNames<data::BreakMode> names_of(data::BreakMode) { return own_names(data::kBreakModes); }
inline EnumNames<data::PadSide> names_of(data::PadSide) {
  return {{"right", data::PadSide::kRight}, {"left", data::PadSide::kLeft}};
}
inline EnumNames<data::PadTo> names_of(data::PadTo) {
  return {{"longest", data::PadTo::kLongest}, {"length", data::PadTo::kLength}};
}
inline EnumNames<data::ShuffleRule> names_of(data::ShuffleRule) {
  return own_names(data::kShuffleRules);
}
inline EnumNames<data::LastBatch> names_of(data::LastBatch) {
  using data::LastBatch;
  return {
      {"short", LastBatch::kShort}, {"pad", LastBatch::kPad}, {"drop_last", LastBatch::kDropLast}};
}
inline EnumNames<LogFormat> names_of(LogFormat) {
  return {{"ours", LogFormat::kOurs}, {"", LogFormat::kGuest}};
}
inline EnumNames<Decay> names_of(Decay) {
  return {{"matrices", Decay::kMatrices}, {"all", Decay::kAll}, {"none", Decay::kNone}};
}
inline EnumNames<LossMean> names_of(LossMean) {
  return {{"tokens", LossMean::kTokens}, {"ranks", LossMean::kRanks}};
}
inline EnumNames<BestMetric> names_of(BestMetric) {
  return {{"none", BestMetric::kNone},
          {"validation_loss", BestMetric::kValidationLoss},
          {"train_loss", BestMetric::kTrainLoss},
          {"eval_loss", BestMetric::kValidationLoss},
          {"loss", BestMetric::kValidationLoss}};
}
inline EnumNames<LossScaling> names_of(LossScaling) {
  return {{"auto", LossScaling::kAuto},
          {"none", LossScaling::kNone},
          {"torch", LossScaling::kTorch},
          {"", LossScaling::kGuest}};
}
inline EnumNames<SpikeAction> names_of(SpikeAction) {
  return {{"stop", SpikeAction::kStop},
          {"rollback", SpikeAction::kRollback},
          {"skip", SpikeAction::kSkip}};
}
inline EnumNames<OnNonfinite> names_of(OnNonfinite) {
  return {{"stop", OnNonfinite::kStop}, {"rollback", OnNonfinite::kRollback}};
}
inline EnumNames<RecomputeMode> names_of(RecomputeMode) {
  return {{"none", RecomputeMode::kNone},
          {"selective", RecomputeMode::kSelective},
          {"full", RecomputeMode::kFull},
          {"offload", RecomputeMode::kOffload}};
}
inline EnumNames<comm::Strategy> names_of(comm::Strategy) {
  using comm::Strategy;
  return own_names(comm::kStrategies, {{"zero3", Strategy::kFullShard},
                                       {"zero2", Strategy::kShardGradOp},
                                       {"zero1", Strategy::kShardOptimizer},
                                       {"ddp", Strategy::kNoShard},
                                       {"_hybrid_shard_zero2", Strategy::kHybridShardZero2}});
}
inline EnumNames<comm::Accumulation> names_of(comm::Accumulation) {
  return own_names(comm::kAccumulations, {{"no_sync", comm::Accumulation::kReduceLast}});
}
// Elsewhere it is asked whether parameters, and with them everything, are offloaded.
inline EnumNames<comm::Offload> names_of(comm::Offload) {
  return own_names(comm::kOffloads,
                   {{"false", comm::Offload::kNone}, {"true", comm::Offload::kAll}});
}
inline EnumNames<Wrap> names_of(Wrap) {
  return {{"transformer_block", Wrap::kTransformerBlock},
          {"none", Wrap::kNone},
          {"size", Wrap::kSize},
          {"class", Wrap::kClass},
          {"transformer_based_wrap", Wrap::kTransformerBlock},
          {"size_based_wrap", Wrap::kSize},
          {"no_wrap", Wrap::kNone}};
}
inline EnumNames<RootUnit> names_of(RootUnit) {
  return {{"split", RootUnit::kSplit}, {"whole", RootUnit::kWhole}};
}
inline EnumNames<comm::BackwardPrefetch> names_of(comm::BackwardPrefetch) {
  using comm::BackwardPrefetch;
  return own_names(comm::kBackwardPrefetches, {{"backward_pre", BackwardPrefetch::kPre},
                                               {"backward_post", BackwardPrefetch::kPost},
                                               {"no_prefetch", BackwardPrefetch::kNone}});
}
inline EnumNames<DType> names_of(DType) {
  return {{"f32", DType::kF32},     {"bf16", DType::kBF16},   {"f16", DType::kF16},
          {"f64", DType::kF64},     {"fp32", DType::kF32},    {"fp16", DType::kF16},
          {"fp64", DType::kF64},    {"float32", DType::kF32}, {"bfloat16", DType::kBF16},
          {"float16", DType::kF16}, {"float64", DType::kF64}};
}
inline EnumNames<optim::ScheduleKind> names_of(optim::ScheduleKind) {
  EnumNames<optim::ScheduleKind> out;
  for (const std::string_view name : optim::schedule_names()) {
    out.emplace_back(name, optim::parse_schedule_kind(name));
  }
  return out;
}
inline EnumNames<optim::OptimizerKind> names_of(optim::OptimizerKind) {
  return own_names(optim::kOptimizerKinds, {{"adamw_torch", optim::OptimizerKind::kAdamW}});
}
template <typename Own, typename Guest>
EnumNames<OwnOrGuest<Own, Guest>> names_of(OwnOrGuest<Own, Guest>) {
  EnumNames<OwnOrGuest<Own, Guest>> out;
  for (const auto& [name, own] : names_of(Own{})) {
    if (!name.empty()) out.emplace_back(name, own);
    if (!name.empty()) continue;
    for (const Guest* guest : guests_of<Guest>()) {
      out.emplace_back(guest->name, OwnOrGuest<Own, Guest>(own, guest));
    }
  }
  return out;
}
// Why a name that other programs know is none of the type's; "": nothing is known about it.
template <typename T>
std::string why_not(const T&, const std::string&) {
  return "";
}
inline std::string why_not(const optim::OptimizerKind&, const std::string& name) {
  const auto starts = [&](const char* with) { return name.rfind(with, 0) == 0; };
  if (starts("adafactor"))
    return ": its second moments are sums over rows and columns of a matrix, which shards cut";
  if (starts("lamb") || starts("lars"))
    return ": its step depends on the norm of every tensor, of which a rank holds a part";
  if (starts("adagrad"))
    return ": there is no Adagrad, whose sum of squares only grows; adam forgets old squares";
  if (name.find("8bit") != std::string::npos)
    return ": state of 8 bits has a scale for each block, and shards cut blocks";
  return "";
}
inline std::string why_not(const Interval&, const std::string& name) {
  return name == "steps" ? ": give their number, as save_steps does" : "";
}
template <typename T>
std::string why_not(const std::optional<T>&, const std::string& name) {
  return why_not(T{}, name);
}
inline EnumNames<optim::Ramp> names_of(optim::Ramp) { return own_names(optim::kRamps); }

// The largest unit comes first, for value_text.
inline constexpr std::pair<std::string_view, int64_t> kTimeUnits[] = {
    {"h", 3600}, {"min", 60}, {"s", 1}};
inline constexpr int64_t kLongestTime = 100LL * 365 * 86400;  // s

inline std::string interval_text(const Interval& interval) {
  if (interval.epoch) return "epoch";
  for (const auto& [unit, seconds] : kTimeUnits) {
    if (interval.seconds > 0 && interval.seconds % seconds == 0) {
      return fmt::format("{}{}", interval.seconds / seconds, unit);
    }
  }
  return fmt::format("{}", interval.steps);
}

inline bool equal_without_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsSections : std::false_type {};
template <typename T>
struct IsSections<std::vector<T>> : std::negation<std::is_same<T, std::string>> {};

// The fields of a struct that say something: {a: b, c: d}.
class FlowWriter : public Visitor {
 public:
  void option(const char* key, Value value, const char*, const OptionField&) override {
    if (value.text() == value.blank()) return;
    text += (text.empty() ? "" : ", ") + std::string(key) + ": " + value.text();
  }
  void section(const char*, const char*, const std::function<void(Visitor&)>&, OnResume) override {}
  std::string text;
};

// [{a: b}, {c: d}]
template <typename S>
std::string list_text(std::vector<S> values) {
  std::string out;
  for (S& value : values) {
    FlowWriter writer;
    visit(writer, value);
    out += (out.empty() ? "{" : ", {") + writer.text + "}";
  }
  return "[" + out + "]";
}

// What the type accepts, for errors and the help: "an integer", "full_shard or no_shard".
template <typename T>
std::string expected_text() {
  if constexpr (std::is_same_v<T, bool>)
    return "true or false";
  else if constexpr (std::is_same_v<T, int64_t>)
    return "an integer";
  else if constexpr (std::is_same_v<T, double>)
    return "a number";
  else if constexpr (std::is_same_v<T, NormType>)
    return "a number from 1, or inf";
  else if constexpr (std::is_same_v<T, Interval>)
    return "a number of steps, epoch, or no (checkpoint.every: 90s, 30min or 2h, too)";
  else if constexpr (std::is_same_v<T, StepsOrShare>)
    return "an integer, or a share such as 10%";
  else if constexpr (std::is_same_v<T, JsonMap>)
    return "a map such as {a: b}";
  else if constexpr (std::is_same_v<T, std::string>)
    return "text";
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return "text or a list of texts";
  else if constexpr (IsSections<T>::value)
    return "a list of sections";
  else if constexpr (IsOptional<T>::value) {
    return "auto or " + expected_text<typename T::value_type>();
  } else {
    std::string out;
    std::vector<T> seen;
    for (const auto& [name, value] : names_of(T{})) {
      bool alias = false;
      for (const T other : seen) alias = alias || other == value;
      if (alias) continue;
      seen.push_back(value);
      out += (out.empty() ? "" : ", ") + std::string(name);
    }
    return "one of " + out;
  }
}

inline bool read_share(const std::string& text, StepsOrShare& value);

// Reads a scalar of a non-list type; false when the text is none.
template <typename T>
bool read_text(const std::string& text, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    const bool yes = equal_without_case(text, "true") || equal_without_case(text, "yes") ||
                     equal_without_case(text, "on");
    const bool no = equal_without_case(text, "false") || equal_without_case(text, "no") ||
                    equal_without_case(text, "off");
    if (yes || no) value = yes;
    return yes || no;
  } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
    T parsed{};
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, parsed);
    if (error != std::errc() || rest != end) return false;
    if (!std::isfinite(static_cast<double>(parsed))) return false;
    value = parsed;
    return true;
  } else if constexpr (std::is_same_v<T, NormType>) {
    if (equal_without_case(text, "inf")) {
      value.power = std::numeric_limits<double>::infinity();
      return true;
    }
    return read_text(text, value.power) && value.power >= 1;
  } else if constexpr (std::is_same_v<T, Interval>) {
    value = {.epoch = equal_without_case(text, "epoch")};
    if (value.epoch || equal_without_case(text, "no")) return true;
    for (const auto& [unit, seconds] : kTimeUnits) {
      int64_t count = 0;
      if (!text.ends_with(unit)) continue;
      if (!read_text(text.substr(0, text.size() - unit.size()), count)) continue;
      value.seconds = count * seconds;
      return count > 0 && count <= kLongestTime / seconds;
    }
    return read_text(text, value.steps) && value.steps >= 0;
  } else if constexpr (std::is_same_v<T, StepsOrShare>) {
    return read_share(text, value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = text;
    return true;
  } else if constexpr (std::is_same_v<T, std::vector<std::string>> || IsSections<T>::value ||
                       std::is_same_v<T, JsonMap>) {
    return false;  // no scalar
  } else if constexpr (IsOptional<T>::value) {
    if (equal_without_case(text, "auto")) {
      value.reset();
      return true;
    }
    typename T::value_type inner{};
    if (!read_text(text, inner)) return false;
    value = inner;
    return true;
  } else {
    for (const auto& [name, known] : names_of(T{})) {
      if (!equal_without_case(text, name)) continue;
      value = known;
      return true;
    }
    return false;
  }
}

inline bool read_share(const std::string& text, StepsOrShare& value) {
  value = {};
  if (!text.ends_with('%')) return read_text(text, value.steps);
  return read_text(text.substr(0, text.size() - 1), value.percent) && value.percent >= 0 &&
         value.percent <= 100;
}

// As YAML (and JSON) text that read_text gives back.
template <typename T>
std::string value_text(const T& value) {
  if constexpr (std::is_same_v<T, bool>)
    return value ? "true" : "false";
  else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>)
    return fmt::format("{}", value);
  else if constexpr (std::is_same_v<T, NormType>)
    return value_text(value.power);
  else if constexpr (std::is_same_v<T, Interval>)
    return interval_text(value);
  else if constexpr (std::is_same_v<T, StepsOrShare>)
    return value.text();
  else if constexpr (std::is_same_v<T, JsonMap>)
    return value.value.dump();
  else if constexpr (std::is_same_v<T, std::string>)
    return Json(value).dump();
  else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    std::string out;
    for (const std::string& item : value) out += (out.empty() ? "" : ", ") + value_text(item);
    return "[" + out + "]";
  } else if constexpr (IsSections<T>::value) {
    return list_text(value);
  } else if constexpr (IsOptional<T>::value) {
    return value ? value_text(*value) : "auto";
  } else {
    for (const auto& [name, known] : names_of(T{})) {
      if (known == value) return std::string(name);
    }
    fail("[config] a value without a name");
  }
}

template <typename T>
const Value::Type& type_of() {
  using Single = typename std::conditional_t<IsOptional<T>::value, T, std::optional<T>>::value_type;
  constexpr bool is_choice = requires { names_of(Single{}); };
  static const Value::Type type = {
      .id = typeid(T),
      .is_optional = IsOptional<T>::value,
      .is_choice = is_choice,
      .is_list = IsSections<T>::value,
      .text = [](const void* value) { return value_text(*static_cast<const T*>(value)); },
      .blank = [] { return value_text(T{}); },
      .read = [](const std::string& text,
                 void* value) { return read_text(text, *static_cast<T*>(value)); },
      .expected = [] { return expected_text<T>(); },
      .why_not = [](const std::string& name) { return why_not(T{}, name); },
      .names =
          [] {
            std::vector<std::string> names;
            if constexpr (is_choice) {
              for (const auto& [name, value] : names_of(Single{})) names.emplace_back(name);
            }
            return names;
          }};
  return type;
}

}  // namespace fsdp::config
