// One object after the other, key by key.
#include "tools/predict/rates_file.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "core/io/file.h"
#include "tools/predict/disk_meter.h"
#include "tools/predict/gpu_kinds.h"
#include "tools/predict/machine_files.h"
#include "tools/predict/machines.h"

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
  // Null where it is not there.
  const Json* find(std::string_view key) {
    known_.emplace_back(key);
    return object_.find(key);
  }
  std::string of(std::string_view key) const { return fmt::format("{}: {}", where_, key); }

  std::string text(std::string_view key) {
    const Json& value = at(key);
    FSDP_CHECK(value.is_string(), "{}: expected a text, got {}", of(key), got(value));
    return value.text();
  }
  double number(std::string_view key, bool may_be_zero) {
    const Json& value = at(key);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    FSDP_CHECK(std::isfinite(number) && (may_be_zero ? number >= 0 : number > 0),
               "{}: expected a number {}, got {}", of(key), may_be_zero ? "from 0" : "above 0",
               got(value));
    return number;
  }
  double number_or(std::string_view key, bool may_be_zero, double otherwise) {
    return object_.contains(key) ? number(key, may_be_zero) : (find(key), otherwise);
  }
  int count(std::string_view key) {
    const double value = number(key, false);
    FSDP_CHECK(value == std::floor(value) && value <= kMost,
               "{}: expected a whole number up to {}, got {}", of(key), kMost, value);
    return static_cast<int>(value);
  }
  bool knows(std::string_view key) const {
    return std::find(known_.begin(), known_.end(), key) != known_.end();
  }
  void done() const {
    for (const auto& [key, value] : object_.items()) {
      FSDP_CHECK(knows(key), "{}: unknown key \"{}\"; known: {}", where_, key,
                 fmt::join(known_, ", "));
    }
  }

 private:
  static constexpr int kMost = 1 << 20;
  const Json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

LinkRate read_link(Keys& keys, std::string_view key) {
  Keys link(keys.at(key), keys.of(key));
  const LinkRate rate = {.latency_us = link.number("latency_us", true),
                         .bytes_per_s = link.number("bytes_per_s", false),
                         .hop_us = link.number_or("hop_us", true, 0)};
  link.done();
  return rate;
}

Json json_of(const LinkRate& link) {
  Json json = {{"latency_us", link.latency_us}, {"bytes_per_s", link.bytes_per_s}};
  if (link.hop_us > 0) json["hop_us"] = link.hop_us;
  return json;
}

DType read_dtype(const std::string& name, const std::string& where) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32, DType::kI64}) {
    if (name == name_of(dtype)) return dtype;
  }
  fail("{}: expected one of f32, bf16, f16, f64, i32, i64, got \"{}\"", where, name);
}

std::map<DType, double> read_by_dtype(const Json& object, const std::string& where) {
  Keys dtypes(object, where);
  std::map<DType, double> out;
  for (const auto& [name, value] : object.items()) {
    out[read_dtype(name, where)] = dtypes.number(name, false);
  }
  return out;
}

Json json_of(const std::map<DType, double>& by_dtype) {
  Json json = Json::object();
  for (const auto& [dtype, rate] : by_dtype) json[name_of(dtype)] = rate;
  return json;
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

// ---- The device ----

void read_products(Keys& keys, Rates& rates) {
  const Json& products = keys.at("flops_per_s");
  rates.flops_per_s = read_by_dtype(products, keys.of("flops_per_s"));
  FSDP_CHECK(rates.flops_per_s.contains(DType::kF32), "{}: expected a key \"f32\" at least, got {}",
             keys.of("flops_per_s"), got(products));
  if (const Json* const peak = keys.find("peak_flops_per_s")) {
    rates.peak_flops_per_s = read_by_dtype(*peak, keys.of("peak_flops_per_s"));
  }
  if (const Json* const half = keys.find("product_half")) {
    Keys extents(*half, keys.of("product_half"));
    rates.product_half = {.m = extents.number("m", true),
                          .n = extents.number("n", true),
                          .k = extents.number("k", true)};
    extents.done();
  }
  if (keys.find("multiprocessors")) rates.multiprocessors = keys.count("multiprocessors");
  if (const Json* const attention = keys.find("attention")) {
    Keys of(*attention, keys.of("attention"));
    rates.attention = {.flops_per_s = read_by_dtype(of.at("flops_per_s"), of.of("flops_per_s")),
                       .head_half = of.number("head_half", true),
                       .keys_half = of.number("keys_half", true)};
    of.done();
  }
}

void read_device(Keys& keys, Rates& rates) {
  read_products(keys, rates);
  rates.memory_bytes_per_s = keys.number("memory_bytes_per_s", false);
  rates.kernel_us = keys.number("kernel_us", true);
  rates.ramp_us = keys.number_or("ramp_us", true, 0);
  rates.issue_us = keys.number("issue_us", true);
  if (const Json* const power = keys.find("power")) {
    Keys watts(*power, keys.of("power"));
    rates.power = {.limit_watts = watts.number("limit_watts", false),
                   .design_watts = watts.number("design_watts", false)};
    watts.done();
    FSDP_CHECK(rates.power.limit_watts <= rates.power.design_watts,
               "{}: expected a limit_watts up to design_watts, got {} and {}", keys.of("power"),
               rates.power.limit_watts, rates.power.design_watts);
  }
  rates.device_gib = keys.number_or("device_gib", false, 0);
  rates.context_mib = keys.number_or("context_mib", true, 0);
}

void write_device(const Rates& rates, Json& json) {
  json["flops_per_s"] = json_of(rates.flops_per_s);
  if (!rates.peak_flops_per_s.empty()) {
    json["peak_flops_per_s"] = json_of(rates.peak_flops_per_s);
  }
  const ProductHalves& half = rates.product_half;
  if (half != ProductHalves{}) {
    json["product_half"] = Json{{"m", half.m}, {"n", half.n}, {"k", half.k}};
  }
  if (rates.multiprocessors > 0) json["multiprocessors"] = rates.multiprocessors;
  if (const AttentionRate& attention = rates.attention; !attention.flops_per_s.empty()) {
    json["attention"] = Json{{"flops_per_s", json_of(attention.flops_per_s)},
                             {"head_half", attention.head_half},
                             {"keys_half", attention.keys_half}};
  }
  json["memory_bytes_per_s"] = rates.memory_bytes_per_s;
  json["kernel_us"] = rates.kernel_us;
  if (rates.ramp_us > 0) json["ramp_us"] = rates.ramp_us;
  json["issue_us"] = rates.issue_us;
  if (rates.power.design_watts > 0) {
    json["power"] =
        Json{{"limit_watts", rates.power.limit_watts}, {"design_watts", rates.power.design_watts}};
  }
  if (rates.device_gib > 0) json["device_gib"] = rates.device_gib;
  if (rates.context_mib > 0) json["context_mib"] = rates.context_mib;
}

// ---- Links ----

comm::Collective read_kind(const std::string& name, const std::string& where) {
  using enum comm::Collective;
  for (const comm::Collective kind : {kAllGather, kReduceScatter, kAllReduce, kBroadcast}) {
    if (name == comm::name_of(kind)) return kind;
  }
  fail("{}: expected one of all_gather, reduce_scatter, all_reduce, broadcast, got \"{}\"", where,
       name);
}

std::vector<MeasuredBus> read_bus(const Json& rows, const std::string& where) {
  FSDP_CHECK(rows.is_array() && rows.size() > 0, "{}: expected an array of rows, got {}", where,
             got(rows));
  std::vector<MeasuredBus> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    Keys row(rows[i], fmt::format("{}[{}]", where, i));
    MeasuredBus bus = {.ranks = row.count("ranks"),
                       .bytes_per_s = row.number("bytes_per_s", false),
                       .p5 = row.number_or("p5", false, 0),
                       .p95 = row.number_or("p95", false, 0)};
    row.done();
    FSDP_CHECK(out.empty() || out.back().ranks < bus.ranks,
               "{}[{}]: expected more ranks than {} in the row before, got {}", where, i,
               out.back().ranks, bus.ranks);
    out.push_back(bus);
  }
  return out;
}

void read_links(Keys& keys, Rates& rates) {
  rates.interference = keys.number_or("interference", true, 0);
  FSDP_CHECK(rates.interference < 1, "{}: expected a share below 1, got {}",
             keys.of("interference"), rates.interference);
  rates.ranks_per_node = keys.count("ranks_per_node");
  rates.inside_node = read_link(keys, "inside_node");
  rates.between_nodes = read_link(keys, "between_nodes");
  if (const Json* const measured = keys.find("measured_bus")) {
    const std::string where = keys.of("measured_bus");
    const Keys kinds(*measured, where);
    for (const auto& [name, rows] : measured->items()) {
      const comm::Collective kind = read_kind(name, where);
      rates.measured_bus[kind] = read_bus(rows, kinds.of(name));
    }
  }
  rates.host_copy = read_link(keys, "host_copy");
  rates.disk_read = read_link(keys, "disk_read");
  rates.disk_write = read_link(keys, "disk_write");
  rates.host_memory_bytes_per_s = keys.number_or("host_memory_bytes_per_s", true, 0);
}

void write_links(const Rates& rates, Json& json) {
  if (rates.interference > 0) json["interference"] = rates.interference;
  json["ranks_per_node"] = rates.ranks_per_node;
  json["inside_node"] = json_of(rates.inside_node);
  json["between_nodes"] = json_of(rates.between_nodes);
  for (const auto& [kind, rows] : rates.measured_bus) {
    Json list = Json::array();
    for (const MeasuredBus& row : rows) {
      Json one = {{"ranks", row.ranks}, {"bytes_per_s", row.bytes_per_s}};
      if (row.p5 > 0) one["p5"] = row.p5;
      if (row.p95 > 0) one["p95"] = row.p95;
      list.push_back(std::move(one));
    }
    json["measured_bus"][comm::name_of(kind)] = list;
  }
  json["host_copy"] = json_of(rates.host_copy);
  json["disk_read"] = json_of(rates.disk_read);
  json["disk_write"] = json_of(rates.disk_write);
  json["host_memory_bytes_per_s"] = rates.host_memory_bytes_per_s;
}

// ---- Where numbers come from ----

void read_sources(const Json& sources, const Keys& keys, Rates& rates) {
  Keys texts(sources, keys.of("sources"));
  for (const auto& [path, text] : sources.items()) {
    FSDP_CHECK(keys.knows(path.substr(0, path.find('.'))),
               "{}: expected keys of this file, got \"{}\"", keys.of("sources"), path);
    rates.sources[path] = texts.text(path);
  }
}

// Sets in `base` what `changes` say, object by object. The sources of what they replace go.
void merge(const Json& changes, const std::string& path, Json& base, Json& sources) {
  for (const auto& [key, value] : changes.items()) {
    if (path.empty() && (key == "sources" || key == "like")) continue;
    const std::string here = path.empty() ? key : path + "." + key;
    sources.erase(here);
    const Json* const old = base.find(key);
    if (value.is_object() && old && old->is_object()) {
      merge(value, here, base[key], sources);
    } else {
      base[key] = value;
    }
  }
}

// The file of a machine; its name is known.
Json file_of(const std::string& name) {
  for (const MachineFile& file : machine_files()) {
    if (file.name == name) return parse_json(file.text, name + ".json");
  }
  return *gpu_rates_file(name);
}

// The whole of a file that is like a machine.
Json completed(const Json& json, const std::string& where) {
  if (!json.is_object() || !json.contains("like")) return json;
  Keys keys(json, where);
  const std::vector<std::string> names = machine_names();
  const std::string name = gpu_named(keys.text("like"), names);
  FSDP_CHECK(!name.empty(), "{}: expected one of {}, got \"{}\"", keys.of("like"),
             fmt::join(names, ", "), keys.text("like"));
  Json base = completed(file_of(name), name);
  Json sources = base.at("sources");
  merge(json, "", base, sources);
  if (const Json* const own = json.find("sources"); own && own->is_object()) sources.update(*own);
  base["sources"] = sources;
  return base;
}

}  // namespace

Rates rates_of_json(const Json& given, const std::string& where) {
  const Json json = completed(given, where);
  Keys keys(json, where);
  Rates rates;
  rates.machine = keys.text("machine");
  if (keys.find("note")) rates.note = keys.text("note");
  read_device(keys, rates);
  read_links(keys, rates);
  if (const Json* const calls = keys.find("calls")) read_calls(*calls, keys.of("calls"), rates);
  if (const Json* const sources = keys.find("sources")) read_sources(*sources, keys, rates);
  keys.done();
  return rates;
}

Rates read_rates(const std::filesystem::path& file) {
  FSDP_CHECK(std::filesystem::exists(file),
             "{}: there is no such file, and no machine of that name; machines: {}", file.string(),
             fmt::join(machine_names(), ", "));
  return rates_of_json(read_json_file(file), file.string());
}

void write_rates(const std::filesystem::path& file, const Rates& rates) {
  Json calls = Json::array();
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
  if (!rates.note.empty()) json["note"] = rates.note;
  write_device(rates, json);
  write_links(rates, json);
  json["calls"] = calls;
  if (!rates.sources.empty()) json["sources"] = Json(rates.sources);
  write_json_file(file, json);
}

std::shared_ptr<CallRates> call_rates(const RatesChoice& choice) {
  Rates rates;
  if (!choice.rates.empty()) {
    // A file that is there counts more than another name of a machine.
    const bool machine = is_machine(choice.rates);
    const bool own = machine && machine_named(choice.rates) == choice.rates;
    const bool named = own || ((machine || size_of_gpu(choice.rates)) && !is_there(choice.rates));
    rates = named ? machine_rates(choice.rates) : read_rates(choice.rates);
  } else if (choice.meter) {
    rates = measured_machine(*choice.meter, "this machine");
    const DiskRates disk = measure_disk(std::filesystem::current_path());
    rates.disk_read = disk.read;
    rates.disk_write = disk.write;
  } else {
    rates = machine_rates(kUsualMachine);
  }
  MeasureCall measure;
  if (CallMeter* const meter = choice.meter) {
    measure = [meter](const meta::KernelCall& call) { return meter->measure(call); };
  }
  return std::make_shared<CallRates>(std::move(rates), std::move(measure), choice.percentile);
}

}  // namespace fsdp::tools
