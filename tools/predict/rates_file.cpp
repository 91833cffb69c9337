// The list of a machine's members, and what is no member of its own: "like", the sources.
#include "tools/predict/rates_file.h"

#include <fmt/ranges.h>

#include "core/io/file.h"
#include "tools/predict/call_meter.h"
#include "tools/predict/machine_files.h"
#include "tools/predict/machines.h"
#include "tools/predict/record_file.h"

namespace fsdp::tools {

DType read_dtype(const std::string& name, const std::string& where) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32, DType::kI64}) {
    if (name == name_of(dtype)) return dtype;
  }
  fail("{}: expected one of f32, bf16, f16, f64, i32, i64, got \"{}\"", where, name);
}

// ---- Records ----

template <typename File>
void visit(File& file, LinkRate& link) {
  file("latency_us", link.latency_us, Allows::kFrom0);
  file("bytes_per_s", link.bytes_per_s);
  file.optional("hop_us", link.hop_us, Allows::kFrom0);
}

template <typename File>
void visit(File& file, ProductHalves& half) {
  file("m", half.m, Allows::kFrom0);
  file("n", half.n, Allows::kFrom0);
  file("k", half.k, Allows::kFrom0);
}

template <typename File>
void visit(File& file, AttentionRate& attention) {
  file("flops_per_s", attention.flops_per_s);
  file("head_half", attention.head_half, Allows::kFrom0);
  file("keys_half", attention.keys_half, Allows::kFrom0);
}

template <typename File>
void visit(File& file, PowerLimit& power) {
  file("limit_watts", power.limit_watts);
  file("design_watts", power.design_watts);
}

template <typename File>
void visit(File& file, MeasuredBus& bus) {
  file("ranks", bus.ranks);
  file("bytes_per_s", bus.bytes_per_s);
  file.optional("p5", bus.p5);
  file.optional("p95", bus.p95);
}

// ---- By kind of collective ----

constexpr std::array kKinds = {comm::Collective::kAllGather, comm::Collective::kReduceScatter,
                               comm::Collective::kAllReduce, comm::Collective::kBroadcast};
using BusByKind = std::map<comm::Collective, std::vector<MeasuredBus>>;

static void read_member(const Json& json, const std::string& where, BusByKind& out) {
  const RecordReader kinds(json, where);
  for (const auto& [name, rows] : json.items()) {
    const auto kind =
        std::find_if(std::begin(kKinds), std::end(kKinds),
                     [&](comm::Collective each) { return comm::name_of(each) == name; });
    FSDP_CHECK(kind != std::end(kKinds), "{}: expected one of {}, got \"{}\"", where,
               "all_gather, reduce_scatter, all_reduce, broadcast", name);
    const std::string of_kind = kinds.of(name);
    FSDP_CHECK(rows.is_array() && rows.size() > 0, "{}: expected an array of rows, got {}", of_kind,
               got(rows));
    std::vector<MeasuredBus>& buses = out[*kind];
    RecordReader::read(rows, of_kind, buses);
    for (size_t i = 1; i < buses.size(); ++i) {
      FSDP_CHECK(buses[i - 1].ranks < buses[i].ranks,
                 "{}[{}]: expected more ranks than {} in the row before, got {}", of_kind, i,
                 buses[i - 1].ranks, buses[i].ranks);
    }
  }
}

static Json json_of(const BusByKind& by_kind) {
  Json json = Json::object();
  for (const auto& [kind, rows] : by_kind) json[comm::name_of(kind)] = RecordWriter::write(rows);
  return json;
}

// ---- By call ----

using CallTimes = std::map<CallKey, double>;

struct CallRow {
  CallKey key;
  std::string dtype = {};
  double us = 0;
};

template <typename File>
void visit(File& file, CallRow& row) {
  file("kernel", row.key.kernel);
  file("shape", row.key.shape);
  file("dtype", row.dtype);
  if constexpr (File::kReads) row.key.dtype = read_dtype(row.dtype, file.of("dtype"));
  file("us", row.us, Allows::kFrom0);
}

static void read_member(const Json& json, const std::string& where, CallTimes& times) {
  std::vector<CallRow> rows;
  RecordReader::read(json, where, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const CallKey& key = rows[i].key;
    FSDP_CHECK(times.emplace(key, rows[i].us).second,
               "{}[{}]: expected every call once, got \"{}\" of {} again", where, i, key.kernel,
               key.shape);
  }
}

static Json json_of(const CallTimes& times) {
  std::vector<CallRow> rows;
  for (const auto& [key, us] : times) rows.push_back({key, std::string(name_of(key.dtype)), us});
  return RecordWriter::write(rows);
}

// ---- The machine ----

template <typename File>
void visit(File& file, Rates& rates) {
  file("machine", rates.machine);
  file.optional("note", rates.note);
  file("flops_per_s", rates.flops_per_s);
  file.optional("peak_flops_per_s", rates.peak_flops_per_s);
  file.optional("product_half", rates.product_half);
  file.optional("multiprocessors", rates.multiprocessors);
  file.optional("attention", rates.attention);
  file("memory_bytes_per_s", rates.memory_bytes_per_s);
  file("kernel_us", rates.kernel_us, Allows::kFrom0);
  file.optional("ramp_us", rates.ramp_us, Allows::kFrom0);
  file("issue_us", rates.issue_us, Allows::kFrom0);
  file.optional("power", rates.power);
  file.optional("device_gib", rates.device_gib);
  file.optional("context_mib", rates.context_mib, Allows::kFrom0);
  file.optional("interference", rates.interference, Allows::kFrom0);
  file("ranks_per_node", rates.ranks_per_node);
  file("inside_node", rates.inside_node);
  file("between_nodes", rates.between_nodes);
  file.optional("measured_bus", rates.measured_bus);
  file("host_copy", rates.host_copy);
  file("disk_read", rates.disk_read);
  file("disk_write", rates.disk_write);
  if constexpr (File::kReads) {
    file.optional("host_memory_bytes_per_s", rates.host_memory_bytes_per_s, Allows::kFrom0);
    file.optional("calls", rates.kernels);
  } else {
    file("host_memory_bytes_per_s", rates.host_memory_bytes_per_s);
    file("calls", rates.kernels);
  }
}

namespace {

void check(const Rates& rates, const RecordReader& file) {
  FSDP_CHECK(rates.flops_per_s.contains(DType::kF32), "{}: expected a key \"f32\" at least, got {}",
             file.of("flops_per_s"), got(RecordWriter::write(rates.flops_per_s)));
  FSDP_CHECK(rates.power.limit_watts <= rates.power.design_watts,
             "{}: expected a limit_watts up to design_watts, got {} and {}", file.of("power"),
             rates.power.limit_watts, rates.power.design_watts);
  FSDP_CHECK(rates.interference < 1, "{}: expected a share below 1, got {}",
             file.of("interference"), rates.interference);
}

// ---- Where numbers come from ----

void read_sources(const Json& sources, const RecordReader& file, Rates& rates) {
  RecordReader texts(sources, file.of("sources"));
  for (const auto& [path, text] : sources.items()) {
    FSDP_CHECK(file.knows(path.substr(0, path.find('.'))),
               "{}: expected keys of this file, got \"{}\"", file.of("sources"), path);
    texts(path, rates.sources[path]);
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
  RecordReader keys(json, where);
  const std::vector<std::string> names = machine_names();
  std::string like;
  keys("like", like);
  const std::string name = gpu_named(like, names);
  FSDP_CHECK(!name.empty(), "{}: expected one of {}, got \"{}\"", keys.of("like"),
             fmt::join(names, ", "), like);
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
  RecordReader file(json, where);
  Rates rates;
  visit(file, rates);
  check(rates, file);
  if (const Json* const sources = file.find("sources")) read_sources(*sources, file, rates);
  file.done();
  return rates;
}

Rates read_rates(const std::filesystem::path& file) {
  FSDP_CHECK(std::filesystem::exists(file),
             "{}: no such file exists, and no machine has this name; machines: {}", file.string(),
             fmt::join(machine_names(), ", "));
  return rates_of_json(read_json_file(file), file.string());
}

void write_rates(const std::filesystem::path& file, const Rates& rates) {
  Json json = RecordWriter::write(rates);
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
