// Contract: tools/predict/machines.h.
#include "tools/predict/machines.h"

#include <algorithm>
#include <cctype>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/json.h"
#include "core/text/byte_size.h"
#include "core/text/similar_names.h"
#include "tools/predict/machine_files.h"
#include "tools/predict/rates_file.h"

namespace fsdp::tools {

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const MachineFile& file : machine_files()) names.emplace_back(file.name);
  for (std::string& name : gpus_in_table()) names.push_back(std::move(name));
  return names;
}

bool is_machine(std::string_view name) { return !gpu_named(name, machine_names()).empty(); }

std::string machine_named(std::string_view given) {
  const std::string name = gpu_named(given, machine_names());
  return name.empty() ? std::string(given) : name;
}

std::string wrong_machine(const std::string& given) {
  if (is_machine(given) || size_of_gpu(given)) return "";
  const std::vector<std::string> names = machine_names();
  const std::string near = nearest_gpus(given, names);
  return fmt::format("expected one of {}, or a size of memory such as 48GiB; got \"{}\"{}",
                     fmt::join(names, ", "), given, near.empty() ? "" : "; near: " + near);
}

std::optional<size_t> size_of_gpu(std::string_view given) {
  const bool has_unit = !given.empty() && std::isalpha(static_cast<unsigned char>(given.back()));
  const auto bytes = has_unit ? read_byte_size(std::string(given)) : std::nullopt;
  return bytes ? std::optional(static_cast<size_t>(*bytes)) : std::nullopt;
}

Rates machine_rates(std::string_view given) {
  const std::string wrong = wrong_machine(std::string(given));
  FSDP_CHECK(wrong.empty(), "machine: {}", wrong);
  if (is_machine(given)) return rates_of_json({{"like", std::string(given)}}, "machine");
  Rates rates = machine_rates(kUsualMachine);
  rates.memory_only = true;
  rates.note.clear();  // of times
  rates.machine = fmt::format("a GPU of {}", given);
  rates.device_gib = static_cast<double>(*size_of_gpu(given)) / (size_t{1} << 30);
  return rates;
}

void check_has_times(const Rates& rates) {
  FSDP_CHECK(
      !rates.memory_only,
      "{}: its memory alone is known, and no time: --rates NAME takes the times of a machine",
      rates.machine);
}
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;
constexpr double kStreamed = 0.8;  // of the data sheet's bandwidth, as in the machines' files

const Json& table() {
  static const Json kTable = parse_json(gpu_table(), "gpus.json");
  return kTable;
}

struct GpuKind {
  std::string name;             // "A100-80"
  std::vector<std::string> as;  // its other names: "A100-SXM4-80GB"
  bool in_table = false;        // it has no file of its own
};

const std::vector<GpuKind>& kinds() {
  static const std::vector<GpuKind> kKinds = [] {
    std::vector<GpuKind> out;
    for (size_t i = 0; i < table().size(); ++i) {
      const Json& row = table()[i];
      GpuKind& kind = out.emplace_back(GpuKind{row["name"].text(), {}, row.contains("like")});
      if (!row.contains("as")) continue;
      for (size_t j = 0; j < row["as"].size(); ++j) kind.as.push_back(row["as"][j].text());
    }
    return out;
  }();
  return kKinds;
}

// Letters and digits alone, without what NVIDIA puts before its names.
std::string plain(std::string_view given) {
  std::string text;
  for (const char c : given) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  for (const std::string_view word : {"nvidia", "geforce", "tesla", "generation"}) {
    const size_t at = text.find(word);
    if (at != std::string::npos) text.erase(at, word.size());
  }
  return text;
}

// Of Slurm's "gpu:a100:4" the kind.
std::string_view kind_in(std::string_view given) {
  if (!given.starts_with("gpu:") && !given.starts_with("gres/gpu:")) return given;
  given.remove_prefix(given.find(':') + 1);
  return given.substr(0, given.find(':'));
}

bool is_of_size(const std::string& name, double gigabytes) {
  constexpr double kLeast = 0.85, kMost = 1.02;  // GiB of gigabytes that are binary or decimal
  const double gib = machine_rates(name).device_gib;
  return gib > kLeast * gigabytes && gib < kMost * gigabytes;
}

std::string named(const std::string& text, const std::vector<std::string>& others) {
  for (const std::string& name : others) {
    if (plain(name) == text) return name;
  }
  for (const GpuKind& kind : kinds()) {
    if (plain(kind.name) == text) return kind.name;
    for (const std::string& other : kind.as) {
      if (plain(other) == text) return kind.name;
    }
  }
  return "";
}

// What stands in the place of the other GPU's numbers, each with its source.
class Likeness {
 public:
  Likeness(const Json& row, const Rates& like) : row_(row), like_(like) {}

  Json file() {
    const std::string name = row_["name"].text();
    json_["like"] = row_["like"].text();
    json_["machine"] = fmt::format(
        "{} in a machine", ranks() == 1 ? "one " + name : fmt::format("{} {}s", ranks(), name));
    add_products();
    set("memory_bytes_per_s", kStreamed * kGiga * number("gb_s"),
        fmt::format("{} GB/s of {}, of which 0.8", number("gb_s"), source()));
    set("device_gib", number("gib"),
        "a size that PyTorch's messages in public reports name; not measured here");
    if (row_.contains("multiprocessors")) {
      set("multiprocessors", number("multiprocessors"), source());
    }
    if (row_.contains("ranks_per_node")) set("ranks_per_node", number("ranks_per_node"), source());
    if (row_.contains("links")) add_links();
    json_["sources"] = sources_;
    return json_;
  }

 private:
  double number(const char* key) const { return row_[key].get<double>(); }
  std::string source() const { return row_["source"].text(); }
  int ranks() const {
    return row_.contains("ranks_per_node") ? row_["ranks_per_node"].get<int>()
                                           : like_.ranks_per_node;
  }
  void set(const char* key, const Json& value, const std::string& source) {
    json_[key] = value;
    sources_[key] = source;
  }

  // The share of its data sheet that the other GPU reaches, of this one's.
  void add_products() {
    const char* const half = row_.contains("bf16") ? "bf16" : "f16";
    const double f32 = kTera * number("f32"), in_16_bits = kTera * number(half);
    const double of_f32 = f32 / like_.peak_flops_per_s.at(DType::kF32);
    const double of_half = in_16_bits / like_.peak_flops_per_s.at(DType::kF16);
    Json products = Json::object(), attention = Json::object(), peaks = Json::object();
    for (const auto& [dtype, rate] : like_.flops_per_s) {
      const bool wide = dtype == DType::kF32 || dtype == DType::kF64;
      products[name_of(dtype)] = rate * (wide ? of_f32 : of_half);
    }
    for (const auto& [dtype, rate] : like_.attention.flops_per_s) {
      attention[name_of(dtype)] = rate * of_half;
    }
    peaks["f32"] = f32;
    for (const auto& [dtype, rate] : like_.peak_flops_per_s) {
      if (dtype == DType::kF16 || dtype == DType::kBF16) peaks[name_of(dtype)] = in_16_bits;
    }
    const std::string share = fmt::format(
        "{} TFLOP/s in 16 bits and {} in f32 of {}, with the "
        "shares of {}; not validated",
        number(half), number("f32"), source(), row_["like"].text());
    set("flops_per_s", products, share);
    set("peak_flops_per_s", peaks, source() + ", dense; for the model FLOPs utilization alone");
    json_["attention"] = Json{{"flops_per_s", attention}};
    sources_["attention.flops_per_s"] = share;
  }

  void add_links() {
    const std::string of = row_["links"].text();
    const Rates links = machine_rates(of);
    for (const auto& [key, link] : {std::pair{"inside_node", links.inside_node},
                                    std::pair{"between_nodes", links.between_nodes}}) {
      set(key,
          Json{{"latency_us", link.latency_us},
               {"bytes_per_s", link.bytes_per_s},
               {"hop_us", link.hop_us}},
          "assumed: PCI Express as of " + of);
    }
  }

  const Json& row_;
  const Rates& like_;
  Json json_ = Json::object(), sources_ = Json::object();
};

}  // namespace

std::vector<std::string> gpus_in_table() {
  std::vector<std::string> names;
  for (const GpuKind& kind : kinds()) {
    if (kind.in_table) names.push_back(kind.name);
  }
  return names;
}

std::string nearest_gpus(std::string_view given, const std::vector<std::string>& names) {
  const std::string text = plain(kind_in(given));
  std::vector<std::string> near;
  for (const std::string& name : names) {
    if (!text.empty() && plain(name).starts_with(text)) near.push_back(name);
  }
  if (!near.empty()) return fmt::format("{}", fmt::join(near, ", "));
  std::vector<std::string> all;
  for (const std::string& name : names) all.push_back(plain(name));
  const std::string nearest = nearest_key(text, all);
  const auto at = std::find(all.begin(), all.end(), nearest) - all.begin();
  return resembles(text, nearest) ? names[static_cast<size_t>(at)] : "";
}

std::string gpu_named(std::string_view given, const std::vector<std::string>& others) {
  const std::string text = plain(kind_in(given));
  if (text.empty()) return "";
  if (std::string name = named(text, others); !name.empty()) return name;
  for (const std::string_view unit : {"gib", "gb", "g"}) {
    if (!text.ends_with(unit)) continue;
    const std::string rest = text.substr(0, text.size() - unit.size());
    if (std::string name = named(rest, others); !name.empty()) return name;  // "A100-80GB"
    for (const size_t digits : {size_t{2}, size_t{3}}) {                     // "RTX 4090 24GB"
      if (rest.size() <= digits) continue;
      const std::string name = named(rest.substr(0, rest.size() - digits), others);
      const double gigabytes = std::atof(rest.c_str() + rest.size() - digits);
      if (!name.empty() && is_of_size(name, gigabytes)) return name;
    }
  }
  return "";
}

std::optional<Json> gpu_rates_file(std::string_view name) {
  for (size_t i = 0; i < table().size(); ++i) {
    const Json& row = table()[i];
    if (!row.contains("like") || row["name"].text() != name) continue;
    const Rates like = machine_rates(row["like"].text());
    return Likeness(row, like).file();
  }
  return {};
}

}  // namespace fsdp::tools
