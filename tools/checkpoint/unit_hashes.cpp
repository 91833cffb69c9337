// Reading gradients, and the file. See [Note: the file].
#include "tools/checkpoint/unit_hashes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "core/io/file.h"
#include "core/io/json.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;
static_assert(std::endian::native == std::endian::little);

fs::path file_of(const fs::path& run_directory) { return run_directory / "unit_hashes.bin"; }

std::string head_of(const std::vector<std::string>& units) {
  return Json{{"version", kVersion}, {"units", units}}.dump() + "\n";
}

size_t bytes_of_record(size_t units) { return sizeof(int64_t) + units * sizeof(UnitHash); }

// The units of a file; none where its head is not whole, or not one of this version.
std::vector<std::string> units_of(const std::string& text) {
  const size_t end = text.find('\n');
  if (end == text.npos) return {};
  try {
    const Json head = parse_json(text.substr(0, end), "unit_hashes.bin");
    if (head.at("version").get<int>() != kVersion) return {};
    return head.at("units").get<std::vector<std::string>>();
  } catch (const std::exception&) {
    return {};
  }
}

// `use` gets the units, and each whole record with its step.
std::vector<std::string> for_each_record(
    const fs::path& run_directory,
    const std::function<void(int64_t step, std::string_view record)>& use) {
  if (!is_there(file_of(run_directory))) return {};
  const std::string text = read_file(file_of(run_directory));
  const std::vector<std::string> units = units_of(text);
  if (units.empty()) return {};
  const size_t size = bytes_of_record(units.size());
  std::string_view rest = std::string_view(text).substr(text.find('\n') + 1);
  for (; rest.size() >= size; rest.remove_prefix(size)) {
    int64_t step = 0;
    std::memcpy(&step, rest.data(), sizeof step);
    use(step, rest.substr(0, size));
  }
  return units;
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<UnitHash> hashes_from(std::string_view bytes) {
  std::vector<UnitHash> hashes(bytes.size() / sizeof(UnitHash));
  std::memcpy(hashes.data(), bytes.data(), bytes.size());
  return hashes;
}

}  // namespace

// ---------------------------------------------------------------------------- Hashing

UnitHasher::UnitHasher(Session& session) : world_(session.world()), units_(owned_units(session)) {
  std::reverse(units_.begin(), units_.end());
  for (const OwnedUnit& unit : units_) names_.push_back(unit.name);
}

std::vector<UnitHash> UnitHasher::hash() {
  std::vector<UnitHash> all;
  for (const OwnedUnit& unit : units_) {
    UnitHash& hash = all.emplace_back();
    hash.weights = hash_of(unit.weights).weights;
    unit.access->begin(ShardAccess::Use::kNorm);
    hash.gradient = hash_of(unit.gradients).weights;
    unit.access->end(ShardAccess::Use::kNorm);
  }
  const std::vector<std::string> of_ranks = world_.exchange(bytes_of(all));
  all.assign(units_.size(), {});
  for (const std::string& bytes : of_ranks) {
    const std::vector<UnitHash> rank = hashes_from(bytes);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].weights += rank[i].weights;
      all[i].gradient += rank[i].gradient;
    }
  }
  return all;
}

// ---------------------------------------------------------------------------- The file

UnitHashLog::UnitHashLog(Session& session, const fs::path& run_directory) : hasher_(session) {
  if (session.world().rank() != 0) return;
  const std::vector<std::string> before = for_each_record(run_directory, [](auto, auto) {});
  if (before != hasher_.units()) {
    write_file_atomically(file_of(run_directory), head_of(hasher_.units()));
  }
  log_ = LineLog(file_of(run_directory));
}

void UnitHashLog::append(int64_t step, const std::vector<UnitHash>& hashes) {
  log_.append_record(bytes_of(std::vector{step}) + bytes_of(hashes));
}

UnitHashes read_unit_hashes(const fs::path& run_directory, int64_t first, int64_t last) {
  UnitHashes out;
  out.units = for_each_record(run_directory, [&](int64_t step, std::string_view record) {
    if (step < first || step > last) return;
    out.steps[step] = hashes_from(record.substr(sizeof step));
  });
  return out;
}

void keep_unit_hashes(const fs::path& run_directory, const fs::path& run_before, int64_t step) {
  std::string kept;
  const std::vector<std::string> units =
      for_each_record(run_before, [&](int64_t of, std::string_view record) {
        if (of <= step) kept += record;
      });
  if (!units.empty()) {
    write_file_atomically(file_of(run_directory), head_of(units) + kept);
  } else {
    fs::remove(file_of(run_directory));
  }
}

}  // namespace fsdp::tools
