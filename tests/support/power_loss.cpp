// Contract: tests/support/power_loss.h.
#include "tests/support/power_loss.h"

#include <algorithm>
#include <fstream>
#include <random>

#include <sys/stat.h>

namespace fsdp::test {

namespace fs = std::filesystem;

namespace {

constexpr size_t kPage = 4096;  // a write may be on the disk in part

}  // namespace

// ---------------------------------------------------------------------------- The record

// By std::filesystem, whose calls are not wrapped.
void PowerLoss::walk(const fs::path& path, int folder, std::map<int, Names>& found,
                     std::map<ino_t, int>& numbers) {
  found[folder];
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(path, gone)) {
    struct stat status {};
    if (::lstat(entry.path().c_str(), &status) != 0) continue;
    const auto known = numbers_.find(status.st_ino);
    const int number = known != numbers_.end() ? known->second : next_++;
    numbers[status.st_ino] = number;
    found[folder][entry.path().filename().string()] = number;
    if (!S_ISDIR(status.st_mode)) continue;
    is_folder_.insert(number);
    walk(entry.path(), number, found, numbers);
  }
}

void PowerLoss::note_names() {
  std::map<int, Names> now;
  std::map<ino_t, int> numbers;
  walk(folder_, 0, now, numbers);
  for (const auto& [folder, names] : folders_) note_changes_of(folder, names, now[folder]);
  for (const auto& [folder, names] : now) {
    if (!folders_.contains(folder)) note_changes_of(folder, {}, names);
  }
  std::erase_if(now, [&](const auto& each) { return each.first != 0 && each.second.empty(); });
  folders_ = std::move(now);
  numbers_ = std::move(numbers);
}

// Names between which something has moved changed in one call.
void PowerLoss::note_changes_of(int folder, const Names& before, const Names& now) {
  std::map<std::string, size_t> group;
  const auto changed = [](const Names& a, const Names& b, const std::string& name) {
    const auto in_a = a.find(name), in_b = b.find(name);
    return in_b == b.end() || in_a == a.end() || in_a->second != in_b->second;
  };
  for (const auto& [name, number] : before) {
    if (changed(now, before, name)) group.emplace(name, group.size());
  }
  for (const auto& [name, number] : now) {
    if (!changed(now, before, name)) continue;
    group.emplace(name, group.size());
    for (const auto& [old, same] : before) {
      if (same != number || !group.contains(old)) continue;
      const size_t from = group[name], to = group[old];
      for (auto& [each, at] : group) at = at == from ? to : at;
    }
  }
  std::map<size_t, Change> changes;
  for (const auto& [name, at] : group) {
    Change& change = changes[at];
    change.kind = Change::kNames;
    change.of = folder;
    const auto found = now.find(name);
    change.names[name] = found == now.end() ? std::nullopt : std::optional(found->second);
  }
  for (auto& [at, change] : changes) changes_.push_back(std::move(change));
}

void PowerLoss::after_call(const IoCall& call) {
  note_names();
  if (call.name == "open") {
    int at = 0;
    for (const auto& part : fs::path(call.path).lexically_relative(folder_)) {
      if (part != ".") at = folders_.at(at).at(part.string());
    }
    opened_[call.file] = at;
  } else if (call.name == "fsync") {
    changes_.push_back({.kind = Change::kSync, .of = opened_.at(call.file)});
  } else if (call.name == "write" || call.name == "pwrite") {
    for (size_t done = 0; done < call.bytes; done += kPage) {
      changes_.push_back({.of = opened_.at(call.file),
                          .offset = call.offset + static_cast<int64_t>(done),
                          .bytes = {static_cast<const char*>(call.data) + done,
                                    std::min(kPage, call.bytes - done)}});
    }
  }
}

void PowerLoss::report(int64_t number) {
  note_names();
  changes_.push_back({.kind = Change::kReport, .offset = number});
}

// ---------------------------------------------------------------------------- The outcomes

// Of the changes before `end` those that may be lost.
std::vector<size_t> PowerLoss::open_at(size_t end, bool honours_sync) const {
  std::set<int> synced;
  std::vector<size_t> open;
  for (size_t i = end; i-- > 0;) {
    const Change& change = changes_[i];
    if (change.kind == Change::kReport) continue;
    if (change.kind != Change::kSync) {
      if (!synced.contains(change.of)) open.push_back(i);
    } else if (honours_sync) {
      synced.insert(change.of);
    }
  }
  return open;
}

PowerLoss::Disk PowerLoss::disk_at(size_t end, const std::vector<size_t>& lost) const {
  Disk disk;
  for (size_t i = 0; i < end; ++i) {
    const Change& change = changes_[i];
    if (std::find(lost.begin(), lost.end(), i) != lost.end()) continue;
    if (change.kind == Change::kNames) {
      for (const auto& [name, number] : change.names) {
        if (number) disk.folders[change.of][name] = *number;
        if (!number) disk.folders[change.of].erase(name);
      }
    } else if (change.kind == Change::kWrite) {
      std::string& file = disk.files[change.of];
      const auto at = static_cast<size_t>(change.offset);
      file.resize(std::max(file.size(), at + change.bytes.size()));  // what is between is zero
      file.replace(at, change.bytes.size(), change.bytes);
    }
  }
  return disk;
}

std::string PowerLoss::text_of(const Disk& disk, int number) const {
  if (!is_folder_.contains(number)) {
    const auto file = disk.files.find(number);
    return file == disk.files.end() ? "" : file->second;
  }
  std::string text = "{";
  const auto names = disk.folders.find(number);
  if (names == disk.folders.end()) return text + "}";
  for (const auto& [name, each] : names->second) text += name + ":" + text_of(disk, each) + ",";
  return text + "}";
}

void PowerLoss::build(const Disk& disk, int folder, const fs::path& place) const {
  fs::create_directory(place);
  const auto names = disk.folders.find(folder);
  if (names == disk.folders.end()) return;
  for (const auto& [name, number] : names->second) {
    if (is_folder_.contains(number)) {
      build(disk, number, place / name);
    } else {
      std::ofstream(place / name, std::ios::binary) << text_of(disk, number);
    }
  }
}

PowerLoss::Result PowerLoss::search(
    const fs::path& place, const Search& how,
    const std::function<std::string(int64_t reported)>& problem) const {
  std::mt19937_64 random(how.seed);
  std::set<std::pair<int64_t, std::string>> seen;
  int64_t reported = 0;
  for (size_t end = 0; end <= changes_.size(); ++end) {
    if (end > 0 && changes_[end - 1].kind == Change::kReport) reported = changes_[end - 1].offset;
    const std::vector<size_t> open = open_at(end, how.honours_sync);
    const bool all = open.size() <= how.exhaustive;
    const int64_t combinations = all ? int64_t{1} << open.size() : how.samples;
    for (int64_t i = 0; i < combinations; ++i) {
      std::vector<size_t> lost;
      for (size_t bit = 0; bit < open.size(); ++bit) {
        // Of many: none, all, then a random part.
        const bool is_lost = all ? (i >> bit & 1) != 0 : i == 0 ? false : i == 1 || random() % 2;
        if (is_lost) lost.push_back(open[bit]);
      }
      const Disk disk = disk_at(end, lost);
      if (!seen.emplace(reported, text_of(disk, 0)).second) continue;
      fs::remove_all(place);
      build(disk, 0, place);
      const std::string found = problem(reported);
      if (!found.empty()) return {static_cast<int64_t>(seen.size()), found};
    }
  }
  return {static_cast<int64_t>(seen.size()), ""};
}

}  // namespace fsdp::test
