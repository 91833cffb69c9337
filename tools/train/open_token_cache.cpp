// The tokens of a run, made by one rank of every host. Contract: tools/train/train_data.h.
#include <algorithm>
#include <cstdlib>
#include <exception>

#include "comm/exchange.h"
#include "tools/launch/launch.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {

namespace {

// Every host makes its cache from its own copy of the text.
void check_same_tokens(comm::Communicator& world, const data::TokenCache& cache,
                       const data::TokenSource& source) {
  struct Seen {
    uint64_t tokens, checksum;
    bool operator==(const Seen&) const = default;
  };
  const std::vector<Seen> all =
      comm::exchange_values(world, Seen{cache.unchecked().size(), cache.checksum_of_tokens()});
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const Seen& s) { return s != all[0]; });
  FSDP_CHECK(
      other == all.end(),
      "{}: the ranks have different tokens: rank {} has {}, rank 0 has {}; the text is not the "
      "same on every host, or changed while the ranks read it",
      source.files.front().string(), other - all.begin(), other->tokens, all[0].tokens);
}

// What the rank says that it is at, while alive. Of an error it stays: who reports it asks later.
class WorkPhase {
 public:
  WorkPhase(comm::Communicator& world, const std::string& name)
      : rings_(*world.rings()), before_(rings_.phase()) {
    rings_.set_phase({.whole = name, .innermost = name});
  }
  ~WorkPhase() {
    if (std::uncaught_exceptions() == 0) rings_.set_phase(before_);
  }
  WorkPhase(const WorkPhase&) = delete;
  WorkPhase& operator=(const WorkPhase&) = delete;

 private:
  comm::CollectiveRings& rings_;
  comm::HostPhase before_;
};

// A folder that is gone with this object; tokens that are mapped stay.
class TemporaryFolder {
 public:
  TemporaryFolder() = default;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  // In the first place that takes one; false: none does.
  bool make() {
    std::error_code none;
    for (const std::filesystem::path& place :
         {std::filesystem::temp_directory_path(none), std::filesystem::path("/tmp"),
          std::filesystem::path("/var/tmp"), std::filesystem::path("/dev/shm")}) {
      std::string name = place.string() + "/fsdp-tokens-XXXXXX";
      if (path_.empty() && !place.empty() && ::mkdtemp(name.data())) path_ = name;
    }
    return !path_.empty();
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

// One writer per host; the end of the first agree() is the barrier that the others wait at.
std::unique_ptr<data::TokenCache> open_token_cache(comm::Communicator& world,
                                                   const std::string& folder,
                                                   const data::TokenSource& source,
                                                   const data::Tokenizer& tokenizer,
                                                   const IoPatience& patience, std::string* note) {
  std::filesystem::path cache =
      data::token_cache_path(folder.empty() ? ".cache/tokens" : folder, source, tokenizer);
  const WorkPhase phase(world, "tokenising");
  const bool writes = first_rank_of_host(world);
  TemporaryFolder temporary;  // of the rank that writes
  std::string elsewhere, why;
  agree(world, patience, [&] {
    if (!writes) return;
    try {
      data::make_token_cache(cache, source, tokenizer);
    } catch (const data::CacheFolderError& error) {
      const bool refused = fsdp::cause_of(error) == Cause::kName;
      if (!refused || !folder.empty() || !temporary.make()) throw;
      elsewhere = temporary.path() + "/" + cache.filename().string();
      why = error.what();
      data::make_token_cache(elsewhere, source, tokenizer);
    }
  });
  const std::vector<std::string> hosts = world.exchange(host_name());
  const std::vector<std::string> places = world.exchange(elsewhere);
  const auto writer = std::find(hosts.begin(), hosts.end(), host_name()) - hosts.begin();
  if (const std::string& place = places[static_cast<size_t>(writer)]; !place.empty()) cache = place;
  // It is there now; another rank of a network's file system may know of its name late.
  IoPatience late = patience;
  late.goes_on = true;
  std::unique_ptr<data::TokenCache> opened;
  agree(world, late, [&] {
    opened = std::make_unique<data::TokenCache>(cache, tokenizer, source.text.progress);
  });
  if (note && !why.empty()) {
    *note = why + ": the tokens are made for this time alone, in a temporary file";
  }
  check_same_tokens(world, *opened, source);
  return opened;
}

}  // namespace fsdp::tools
