// The token file: the tokens as i32, the stamps of the source files, and a footer of 64 bytes that
// describes both; at the end, so that tokens are written while they come.
// Contract: tools/data/token_cache.h.
//
// [Note: when a cache is up to date]
// A source file counts as unchanged when its size and time of change are those of the stamp; when
// only the time differs (a copy, a checkout), when its size and content hash are. A file that was
// changed within two seconds of being read might change again without getting another time: its
// stamp holds no time, so that the content is always compared.
#include "tools/data/token_cache.h"

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include <unistd.h>

#include "core/error.h"
#include "core/rng.h"

namespace fsdp::data {
namespace {

constexpr char kMagic[8] = {'F', 'S', 'D', 'P', 'T', 'O', 'K', '\n'};
constexpr uint32_t kVersion = 1;
static_assert(std::endian::native == std::endian::little);

struct Footer {
  char magic[8];
  uint32_t version;
  uint32_t files;      // number of stamps
  uint64_t tokenizer;  // identity
  uint64_t options;    // hash of format, field, separator
  int64_t vocab_size;
  int64_t tokens;
  uint64_t reserved[2];
};
static_assert(sizeof(Footer) == 64);

struct FileStamp {
  uint64_t size;     // bytes
  int64_t changed;   // nanoseconds of the file clock; 0: compare the content
  uint64_t content;  // hash
};

// 64 bits over 8 bytes at a time: multiply and rotate. For telling versions of a file apart.
uint64_t hash_content(std::string_view bytes) {
  uint64_t hash = 0x9e3779b97f4a7c15ull ^ bytes.size();
  const auto mix = [&](uint64_t word) {
    hash = std::rotl((hash ^ word) * 0xff51afd7ed558ccdull, 29);
  };
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    mix(word);
  }
  uint64_t tail = 0;
  std::memcpy(&tail, bytes.data() + i, bytes.size() - i);
  mix(tail);
  mix(0);
  return hash ^ (hash >> 32);
}

int64_t time_of_change(const std::filesystem::path& file) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(file, error);
  FSDP_CHECK(!error, "{}: cannot open: {}", file.string(), error.message());
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

FileStamp stamp_of(const std::filesystem::path& file) {
  using Clock = std::filesystem::file_time_type::clock;
  const int64_t now = std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
  const int64_t changed = time_of_change(file);
  const MappedFile mapped(file);
  return {.size = mapped.size(),
          .changed = now - changed > 2'000'000'000 ? changed : 0,
          .content = hash_content(mapped.text())};
}

bool unchanged(const std::filesystem::path& file, const FileStamp& stamp) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(file, error);
  FSDP_CHECK(!error, "{}: cannot open: {}", file.string(), error.message());
  if (size != stamp.size) return false;
  if (stamp.changed != 0 && time_of_change(file) == stamp.changed) return true;
  return hash_content(MappedFile(file).text()) == stamp.content;
}

uint64_t options_hash(const TokenSource& source) {
  std::string text = fmt::format("{}\n{}\n", source.text.field, source.document_separator);
  for (const auto& file : source.files) {
    text += fmt::format("{}\n", name_of(format_of(file, source.text.format)));
  }
  return hash_name(text);
}

// The footer of a mapped cache, or what is wrong with it.
struct CheckedFooter {
  Footer footer{};
  std::string problem;
};

CheckedFooter read_footer(const MappedFile& file, const Tokenizer& tokenizer) {
  CheckedFooter out;
  if (file.size() < sizeof(Footer)) return {out.footer, "it is too short"};
  const uint64_t payload = file.size() - sizeof(Footer);
  std::memcpy(&out.footer, file.data() + payload, sizeof(Footer));
  const Footer& f = out.footer;
  if (std::memcmp(f.magic, kMagic, sizeof kMagic) != 0) return {f, "it is not a token cache"};
  if (f.version != kVersion) return {f, fmt::format("its version is {}", f.version)};
  if (f.files > payload / sizeof(FileStamp) || f.tokens < 0 ||
      static_cast<uint64_t>(f.tokens) > payload / sizeof(int32_t) ||
      f.files * sizeof(FileStamp) + static_cast<uint64_t>(f.tokens) * sizeof(int32_t) != payload) {
    return {f, "its size does not fit its footer"};
  }
  if (f.tokenizer != tokenizer.identity()) return {f, "it was made by another tokenizer"};
  return out;
}

// Why the cache has to be made; "" when it is up to date.
std::string reason_to_build(const std::filesystem::path& cache, const TokenSource& source,
                            const Tokenizer& tokenizer, int64_t& tokens) {
  if (!std::filesystem::exists(cache)) return "there was none";
  const MappedFile file(cache);
  const CheckedFooter checked = read_footer(file, tokenizer);
  if (!checked.problem.empty()) return checked.problem;
  const Footer& footer = checked.footer;
  if (footer.files != source.files.size()) return "the list of files has changed";
  if (footer.options != options_hash(source)) return "the options have changed";
  const std::byte* stamps = file.data() + footer.tokens * static_cast<int64_t>(sizeof(int32_t));
  for (size_t i = 0; i < source.files.size(); ++i) {
    FileStamp stamp{};
    std::memcpy(&stamp, stamps + i * sizeof stamp, sizeof stamp);
    if (!unchanged(source.files[i], stamp)) return source.files[i].string() + " has changed";
  }
  tokens = footer.tokens;
  return "";
}

int64_t build(const std::filesystem::path& cache, const TokenSource& source,
              const Tokenizer& tokenizer) {
  // All stamps before any text is read: what changes later does not fit its stamp.
  std::vector<FileStamp> stamps;
  for (const auto& file : source.files) stamps.push_back(stamp_of(file));
  AtomicFile file(cache);
  Footer footer{};
  const auto write = [&](std::span<const int32_t> ids) {
    file.write(ids.data(), ids.size_bytes());
    footer.tokens += static_cast<int64_t>(ids.size());
  };
  const int32_t end = tokenizer.end_of_text();
  FSDP_CHECK(end >= 0 || !source.document_separator,
             "data.document_separator: {}: no end-of-text token is known (eos_token of "
             "tokenizer_config.json)",
             tokenizer.name());
  // Some tokenizers end every text by themselves.
  const std::vector<int32_t> frame = tokenizer.encode("");
  const bool separate = source.document_separator && (frame.empty() || frame.back() != end);
  for (const auto& source_file : source.files) {
    for_each_document(source_file, source.text, [&](std::string_view document) {
      tokenizer.encode_to(document, SpecialTokens::kInclude, write);
      if (separate) write({&end, 1});
    });
  }
  std::memcpy(footer.magic, kMagic, sizeof kMagic);
  footer.version = kVersion;
  footer.files = static_cast<uint32_t>(stamps.size());
  footer.tokenizer = tokenizer.identity();
  footer.options = options_hash(source);
  footer.vocab_size = tokenizer.vocab_size();
  file.write(stamps.data(), stamps.size() * sizeof(FileStamp));
  file.write(&footer, sizeof footer);
  file.commit();
  return footer.tokens;
}

}  // namespace

std::filesystem::path token_cache_path(const std::filesystem::path& folder,
                                       const TokenSource& source, const Tokenizer& tokenizer) {
  FSDP_CHECK(!source.files.empty(), "[data] expected at least one file");
  std::string identity = fmt::format("{}\n{}\n", tokenizer.identity(), options_hash(source));
  for (const auto& file : source.files) {
    identity += std::filesystem::absolute(file).lexically_normal().string() + "\n";
  }
  return folder /
         fmt::format("{}-{:016x}.tokens", source.files[0].stem().string(), hash_name(identity));
}

CacheResult make_token_cache(const std::filesystem::path& cache, const TokenSource& source,
                             const Tokenizer& tokenizer) {
  CacheResult out;
  out.reason = reason_to_build(cache, source, tokenizer, out.tokens);
  if (out.reason.empty()) return out;
  if (cache.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(cache.parent_path(), error);
    FSDP_CHECK(!error, "data.cache_dir: {}: cannot be made: {}", cache.parent_path().string(),
               error.message());
    FSDP_CHECK(::access(cache.parent_path().c_str(), W_OK) == 0,
               "data.cache_dir: {}: cannot be written: {}", cache.parent_path().string(),
               std::generic_category().message(errno));
  }
  out.tokens = build(cache, source, tokenizer);
  out.built = true;
  return out;
}

TokenCache::TokenCache(const std::filesystem::path& cache, const Tokenizer& tokenizer)
    : file_(cache) {
  const CheckedFooter checked = read_footer(file_, tokenizer);
  FSDP_CHECK(checked.problem.empty(), "{}: this token cache cannot be used: {}; delete it",
             cache.string(), checked.problem);
  vocab_size_ = checked.footer.vocab_size;
  tokens_ = {reinterpret_cast<const int32_t*>(file_.data()),
             static_cast<size_t>(checked.footer.tokens)};
}

}  // namespace fsdp::data
