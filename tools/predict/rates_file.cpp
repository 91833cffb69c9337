// One list of keys for reading and writing.
#include "tools/predict/rates_file.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "core/io/json.h"
#include "tools/predict/disk_meter.h"
#include "tools/predict/nominal_gpus.h"

namespace fsdp::tools {
namespace {

std::string got(const Json& value) { return value.dump({.ascii = true}); }

// One object of the file, whose keys are asked for one by one.
class Keys {
 public:
  Keys(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    FSDP_CHECK(object.is_object(), "{}: expected an object, got {}", where_, got(object));
  }

  const Json& at(std::string_view key) {
    const Json* const value = object_.find(key);
    FSDP_CHECK(value, "{}: expected a key \"{}\", got none", where_, key);
    known_.emplace_back(key);
    return *value;
  }
  bool has(std::string_view key) const { return object_.contains(key); }
  std::string of(std::string_view key) const { return fmt::format("{}: {}", where_, key); }

  std::string text(std::string_view key) {
    const Json& value = at(key);
    FSDP_CHECK(value.is_string(), "{}: expected a text, got {}", of(key), got(value));
    return value.text();
  }
  // `least`: 0 where that is a sensible value, else above it.
  double number(std::string_view key, bool may_be_zero) {
    const Json& value = at(key);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    FSDP_CHECK(std::isfinite(number) && (may_be_zero ? number >= 0 : number > 0),
               "{}: expected a number {}, got {}", of(key), may_be_zero ? "from 0" : "above 0",
               got(value));
    return number;
  }
  void done() const {
    for (const auto& [key, value] : object_.items()) {
      FSDP_CHECK(std::find(known_.begin(), known_.end(), key) != known_.end(),
                 "{}: unknown key \"{}\"; known: {}", where_, key, fmt::join(known_, ", "));
    }
  }

 private:
  const Json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

LinkRate read_link(Keys& keys, std::string_view key) {
  Keys link(keys.at(key), keys.of(key));
  const LinkRate rate = {.latency_us = link.number("latency_us", true),
                         .bytes_per_s = link.number("bytes_per_s", false)};
  link.done();
  return rate;
}

Json json_of(const LinkRate& link) {
  return {{"latency_us", link.latency_us}, {"bytes_per_s", link.bytes_per_s}};
}

DType read_dtype(const std::string& name, const std::string& where) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32, DType::kI64}) {
    if (name == name_of(dtype)) return dtype;
  }
  fail("{}: expected one of f32, bf16, f16, f64, i32, i64, got \"{}\"", where, name);
}

void read_calls(const Json& calls, const std::string& where, Rates& rates) {
  FSDP_CHECK(calls.is_array(), "{}: expected an array, got {}", where, got(calls));
  for (size_t i = 0; i < calls.size(); ++i) {
    Keys row(calls[i], fmt::format("{}[{}]", where, i));
    CallKey key = {.kernel = row.text("kernel"), .shape = row.text("shape"), .dtype = {}};
    key.dtype = read_dtype(row.text("dtype"), row.of("dtype"));
    const double us = row.number("us", true);
    row.done();
    FSDP_CHECK(rates.kernels.emplace(std::move(key), us).second,
               "{}[{}]: expected every call once, got \"{}\" of {} again", where, i,
               calls[i]["kernel"].text(), calls[i]["shape"].text());
  }
}

}  // namespace

Rates read_rates(const std::filesystem::path& file) {
  const Json json = read_json_file(file);
  Keys keys(json, file.string());
  Rates rates;
  rates.machine = keys.text("machine");
  const Json& products = keys.at("flops_per_s");
  Keys dtypes(products, keys.of("flops_per_s"));
  for (const auto& [name, value] : products.items()) {
    const DType dtype = read_dtype(name, keys.of("flops_per_s"));
    rates.flops_per_s[dtype] = dtypes.number(name, false);
  }
  FSDP_CHECK(rates.flops_per_s.contains(DType::kF32), "{}: expected a key \"f32\" at least, got {}",
             keys.of("flops_per_s"), got(products));
  rates.memory_bytes_per_s = keys.number("memory_bytes_per_s", false);
  rates.kernel_us = keys.number("kernel_us", true);
  rates.issue_us = keys.number("issue_us", true);
  const double ranks = keys.number("ranks_per_node", false);
  FSDP_CHECK(ranks == std::floor(ranks) && ranks <= (1 << 20),
             "{}: expected a whole number up to {}, got {}", keys.of("ranks_per_node"), 1 << 20,
             ranks);
  rates.ranks_per_node = static_cast<int>(ranks);
  rates.inside_node = read_link(keys, "inside_node");
  rates.between_nodes = read_link(keys, "between_nodes");
  rates.host_copy = read_link(keys, "host_copy");
  rates.disk_read = read_link(keys, "disk_read");
  rates.disk_write = read_link(keys, "disk_write");
  if (keys.has("host_memory_bytes_per_s")) {
    rates.host_memory_bytes_per_s = keys.number("host_memory_bytes_per_s", true);
  }
  if (keys.has("calls")) read_calls(keys.at("calls"), keys.of("calls"), rates);
  keys.done();
  return rates;
}

void write_rates(const std::filesystem::path& file, const Rates& rates) {
  Json products = Json::object(), calls = Json::array();
  for (const auto& [dtype, rate] : rates.flops_per_s) products[name_of(dtype)] = rate;
  for (const auto& [key, us] : rates.kernels) {
    Json row = Json::object();
    row["kernel"] = key.kernel;
    row["shape"] = key.shape;
    row["dtype"] = std::string(name_of(key.dtype));
    row["us"] = us;
    calls.push_back(std::move(row));
  }
  Json json = Json::object();
  json["machine"] = rates.machine;
  json["flops_per_s"] = products;
  json["memory_bytes_per_s"] = rates.memory_bytes_per_s;
  json["kernel_us"] = rates.kernel_us;
  json["issue_us"] = rates.issue_us;
  json["ranks_per_node"] = rates.ranks_per_node;
  json["inside_node"] = json_of(rates.inside_node);
  json["between_nodes"] = json_of(rates.between_nodes);
  json["host_copy"] = json_of(rates.host_copy);
  json["disk_read"] = json_of(rates.disk_read);
  json["disk_write"] = json_of(rates.disk_write);
  json["host_memory_bytes_per_s"] = rates.host_memory_bytes_per_s;
  json["calls"] = calls;
  write_json_file(file, json);
}

std::shared_ptr<CallRates> call_rates(const std::string& file, CallMeter* meter) {
  Rates rates = nominal_rates();
  if (!file.empty()) {
    rates = read_rates(file);
  } else if (meter) {
    rates = measured_machine(*meter, "this machine");
    const DiskRates disk = measure_disk(std::filesystem::current_path());
    rates.disk_read = disk.read;
    rates.disk_write = disk.write;
  }
  MeasureCall measure;
  if (meter) measure = [meter](const meta::KernelCall& call) { return meter->measure(call); };
  return std::make_shared<CallRates>(std::move(rates), std::move(measure));
}

}  // namespace fsdp::tools
