// The token file: the tokens as i32, a checksum for each block, the stamps of the source
// files, the spans of the rows (at a multiple of 8 bytes), the turns of conversations, the rows
// that were skipped as text, and a footer of 80 bytes that describes all six; at the end, so that
// tokens are written while they come. Contract: tools/data/token_cache.h.
//
// [Note: when a cache is up to date]
// A source file counts as unchanged when its size, both its times and its inode equal the
// stamp. When one of the latter differs, its content decides. The time of modification alone would
// not do: `rsync -t`, `tar` and `cp -p` set it. Nobody can set the time of the inode's change. A
// file that changed within two seconds of being read might change again without getting another
// time: the content of such a file is always compared. Where contents agree and the status has
// settled, the cache gets the new stamp, so that the next run need not compare them again. The
// stamps and the footer are written over the old ones in one piece: where a crash tears it, the
// footer's checksum does not match, and the cache is made again.
//
// [Note: blocks]
// A block is compared with its checksum when it is first used, not when the file is opened: a data
// set may be larger than memory, and a run may use a small part. 64 KiB is less than the system
// reads ahead, so a block costs no further access to the disk.
#include "tools/data/token_cache.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <system_error>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/checksum.h"
#include "core/io/forget_pages.h"
#include "core/io/patience.h"
#include "core/rng.h"

namespace fsdp::data {
namespace {

constexpr char kMagic[8] = {'F', 'S', 'D', 'P', 'T', 'O', 'K', '\n'};
constexpr uint32_t kVersion = 6;  // one more where the same texts become other tokens, or an error
constexpr size_t kBlock = 16384;  // tokens
constexpr size_t kBytesOfToken = 8;  // of a text, about, at most
static_assert(std::endian::native == std::endian::little);

struct Footer {
  char magic[8];
  uint32_t version;
  uint32_t files;      // number of stamps
  uint64_t tokenizer;  // identity
  uint64_t options;    // hash of format, template, separator, subset, what becomes of bad rows
  int64_t vocab_size;
  int64_t tokens;
  uint64_t examples;  // spans
  uint64_t turns;     // of all rows
  uint64_t skipped;   // bytes of to_jsonl(skipped rows)
  uint64_t checksum;  // of all that stands between the tokens and here
};
static_assert(sizeof(Footer) == 80);

struct FileStamp {
  uint64_t size;     // bytes
  int64_t modified;  // nanoseconds since 1970, as the file system says
  int64_t changed;   // the same, of the inode; 0: compare the content
  uint64_t inode;
  uint64_t content;  // checksum
};

int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

// Without `content`.
FileStamp status_of(const std::filesystem::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) {
    const int code = errno;
    throw SystemError(
        fmt::format("{}: cannot open: {}", file.string(), std::generic_category().message(code)),
        code);
  }
  return {.size = static_cast<uint64_t>(status.st_size),
          .modified = nanoseconds(status.st_mtim),
          .changed = nanoseconds(status.st_ctim),
          .inode = status.st_ino,
          .content = 0};
}

// Piece by piece: a large file is not in memory all at once.
uint64_t checksum_of(const MappedFile& file, const TextOptions& options) {
  const std::string_view text = file.text();
  uint64_t sum = checksum(text.substr(0, kForgetBytes));
  for (size_t first = kForgetBytes; first < text.size(); first += kForgetBytes) {
    forget_pages(file);
    options.tell(kForgetBytes);
    sum = mixed(sum) + checksum(text.substr(first, kForgetBytes));
  }
  return sum;
}

FileStamp stamp_of(const std::filesystem::path& file, const TextOptions& options) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  FileStamp stamp = status_of(file);
  if (nanoseconds(now) - std::max(stamp.modified, stamp.changed) < 2'000'000'000) stamp.changed = 0;
  const MappedFile mapped(file);
  stamp.size = mapped.size();
  stamp.content = checksum_of(mapped, options);
  options.tell(1);
  return stamp;
}

bool same_status(const FileStamp& a, const FileStamp& b) {
  return a.size == b.size && a.modified == b.modified && a.changed == b.changed &&
         a.inode == b.inode;
}

// Compares contents where the status does not decide; an unchanged file's stamp is renewed then.
bool unchanged(const std::filesystem::path& file, FileStamp& stamp, const TextOptions& options) {
  const FileStamp now = status_of(file);
  if (now.size != stamp.size) return false;
  if (stamp.changed != 0 && same_status(now, stamp)) return true;
  const FileStamp renewed = stamp_of(file, options);
  if (renewed.size != stamp.size || renewed.content != stamp.content) return false;
  stamp = renewed;
  return true;
}

uint64_t options_hash(const TokenSource& source) {
  std::string text = fmt::format("{}\n{}\n", source.text.field, source.document_separator);
  for (const auto& file : source.files) {
    text += fmt::format("{}\n", name_of(format_of(file, source.text.format)));
  }
  // A text that is taken as it is may be one that is refused otherwise.
  if (source.text.format == TextFormat::kText) text += "as it is\n";
  if (source.text.bad_rows == BadRows::kSkip) text += "skip\n";
  if (source.subset) text += fmt::format("subset {} {}\n", source.subset->n, source.subset->seed);
  text += fmt::format("{} {}\n", name_of(source.form), static_cast<int>(source.text.lines));
  if (const auto rows = source.text.template_of_rows()) text += rows->text();
  if (source.text.chat) text += source.text.chat->identity();
  text += fmt::format("{}\n", fmt::join(source.end_tokens, " "));
  return hash_name(text);
}

uint64_t blocks_of(uint64_t tokens) { return (tokens + kBlock - 1) / kBlock; }

uint64_t bytes_of_tokens(const Footer& footer) {
  return static_cast<uint64_t>(footer.tokens) * sizeof(int32_t);
}

uint64_t bytes_of_checksums(const Footer& footer) {
  return blocks_of(static_cast<uint64_t>(footer.tokens)) * sizeof(uint64_t);
}

// Between the stamps and the spans: what is before them is a multiple of 4 bytes.
uint64_t bytes_of_gap(const Footer& footer) {
  return footer.examples > 0 && footer.tokens % 2 != 0 ? sizeof(int32_t) : 0;
}

// From the beginning of the file.
uint64_t place_of_examples(const Footer& footer) {
  return bytes_of_tokens(footer) + bytes_of_checksums(footer) + footer.files * sizeof(FileStamp) +
         bytes_of_gap(footer);
}

uint64_t place_of_turns(const Footer& footer) {
  return place_of_examples(footer) + footer.examples * sizeof(ExampleSpan);
}

uint64_t bytes_of_turns(const Footer& footer) { return footer.turns * sizeof(RowTurn); }

// Of a file that is as long as its footer says.
uint64_t checksum_behind_tokens(const MappedFile& file, const Footer& footer) {
  const std::string_view covered = file.text().substr(bytes_of_tokens(footer));
  return checksum(covered.substr(0, covered.size() - sizeof footer.checksum));
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
  if (f.files > payload / sizeof(FileStamp) || f.tokens < 0 || f.skipped > payload ||
      static_cast<uint64_t>(f.tokens) > payload / sizeof(int32_t) ||
      f.examples > payload / sizeof(ExampleSpan) || f.turns > payload / sizeof(RowTurn) ||
      place_of_turns(f) + bytes_of_turns(f) + f.skipped != payload) {
    return {f, "its size does not fit its footer"};
  }
  if (checksum_behind_tokens(file, f) != f.checksum) return {f, "its footer is damaged"};
  if (f.tokenizer != tokenizer.identity()) return {f, "it was made by another tokenizer"};
  return out;
}

// Writes other stamps of the same number over a cache's stamps. Best effort: where the cache may be
// read only, contents are compared again the next time.
void renew_stamps(const MappedFile& file, const Footer& footer,
                  const std::vector<FileStamp>& stamps) {
  std::string tail(file.text().substr(bytes_of_tokens(footer)));
  const size_t first = bytes_of_checksums(footer);
  std::memcpy(tail.data() + first, stamps.data(), stamps.size() * sizeof(FileStamp));
  const uint64_t sum = checksum(std::string_view(tail).substr(0, tail.size() - sizeof sum));
  std::memcpy(tail.data() + tail.size() - sizeof sum, &sum, sizeof sum);
  const int descriptor = ::open(file.path().c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  const auto place = static_cast<off_t>(bytes_of_tokens(footer) + first);
  const ssize_t written = ::pwrite(descriptor, tail.data() + first, tail.size() - first, place);
  static_cast<void>(written);  // a part of it: see [Note: when a cache is up to date]
  ::close(descriptor);
}

// Why the cache has to be made; "" when it is up to date.
std::string reason_to_build(const std::filesystem::path& cache, const TokenSource& source,
                            const Tokenizer& tokenizer, int64_t& tokens) {
  if (!is_there(cache)) return "there was none";
  const MappedFile file(cache);
  const CheckedFooter checked = read_footer(file, tokenizer);
  if (!checked.problem.empty()) return checked.problem;
  const Footer& footer = checked.footer;
  if (footer.files != source.files.size()) return "the list of files has changed";
  if (footer.options != options_hash(source)) return "the options have changed";
  std::vector<FileStamp> stamps(footer.files);
  std::memcpy(stamps.data(), file.data() + bytes_of_tokens(footer) + bytes_of_checksums(footer),
              stamps.size() * sizeof(FileStamp));
  bool renewed = false;
  for (size_t i = 0; i < stamps.size(); ++i) {
    const FileStamp before = stamps[i];
    if (!unchanged(source.files[i], stamps[i], source.text))
      return source.files[i].string() + " has changed";
    renewed = renewed || !same_status(before, stamps[i]);
  }
  if (renewed) renew_stamps(file, footer, stamps);
  tokens = footer.tokens;
  return "";
}

// Tokens into a file, and what follows them.
class TokenWriter {
 public:
  TokenWriter(const std::filesystem::path& cache, comm::WorkProgress* progress)
      : file_(cache), progress_(progress) {}

  void write(std::span<const int32_t> ids) {
    tokens_ += static_cast<int64_t>(ids.size());
    while (!ids.empty()) {
      const size_t count = std::min(ids.size(), kBlock - block_.size());
      block_.insert(block_.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
      ids = ids.subspan(count);
      if (block_.size() == kBlock) end_block();
    }
  }
  std::vector<RowTurn> turns;  // of all rows
  // A row that ends with what was written last.
  void end_row(ExampleSpan span) {
    span.end = static_cast<uint64_t>(tokens_);
    examples_.push_back(span);
  }
  int64_t finish(const std::vector<FileStamp>& stamps, const std::string& skipped, Footer footer) {
    if (!block_.empty()) end_block();
    std::memcpy(footer.magic, kMagic, sizeof kMagic);
    footer.version = kVersion;
    footer.files = static_cast<uint32_t>(stamps.size());
    footer.tokens = tokens_;
    footer.examples = examples_.size();
    footer.turns = turns.size();
    footer.skipped = skipped.size();
    std::string tail;
    const auto append = [&](const void* data, size_t bytes) {
      tail.append(static_cast<const char*>(data), bytes);
    };
    append(checksums_.data(), checksums_.size() * sizeof(uint64_t));
    append(stamps.data(), stamps.size() * sizeof(FileStamp));
    tail.append(bytes_of_gap(footer), '\0');
    append(examples_.data(), examples_.size() * sizeof(ExampleSpan));
    append(turns.data(), turns.size() * sizeof(RowTurn));
    tail += skipped;
    append(&footer, sizeof footer - sizeof footer.checksum);
    footer.checksum = checksum(tail);
    append(&footer.checksum, sizeof footer.checksum);
    in_storage([&] {
      file_.write(tail);
      file_.commit();
    });
    return tokens_;
  }

 private:
  void end_block() {
    const std::string_view bytes(reinterpret_cast<const char*>(block_.data()),
                                 block_.size() * sizeof(int32_t));
    checksums_.push_back(checksum(bytes));
    in_storage([&] { file_.write(bytes); });
    block_.clear();
  }
  template <typename Call>
  void in_storage(const Call& call) {
    progress_ ? progress_->during(call) : call();
  }

  AtomicFile file_;
  comm::WorkProgress* progress_;  // null: nobody waits
  int64_t tokens_ = 0;
  std::vector<int32_t> block_;
  std::vector<uint64_t> checksums_;
  std::vector<ExampleSpan> examples_;
};

// Whether no other host writes into the folder: all who do see each other's locks.
bool is_of_this_host(const std::filesystem::path& folder) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) return false;
  constexpr uint64_t kLocal[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,       BTRFS_SUPER_MAGIC,
                                 TMPFS_MAGIC,      OVERLAYFS_SUPER_MAGIC, F2FS_SUPER_MAGIC};
  return std::ranges::find(kLocal, static_cast<uint64_t>(status.f_type)) != std::end(kLocal);
}

// What processes that were killed have left beside the file. A second: a file is locked just after
// it was made. A minute: a host may not see the locks of another, whose process writes all the
// time. A day: some file systems have no locks.
void remove_abandoned(const std::filesystem::path& cache) {
  namespace fs = std::filesystem;
  const std::string prefix = cache.filename().string() + ".";
  const auto now = fs::file_time_type::clock::now();
  std::error_code unreadable;
  const auto youngest = std::chrono::seconds(is_of_this_host(cache.parent_path()) ? 1 : 60);
  for (const auto& item : fs::directory_iterator(cache.parent_path(), unreadable)) {
    const std::string name = item.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(".tmp")) continue;
    const auto age = now - item.last_write_time(unreadable);
    if (unreadable || age < youngest) continue;
    if (age > std::chrono::hours(24) || is_abandoned(item)) fs::remove(item, unreadable);
  }
}

std::vector<SkippedRow> for_each_source_row(const TokenSource& source, const UseDocument& use) {
  if (source.subset) return for_each_row_of(*source.subset, source.files, source.text, use);
  return for_each_document(source.files, source.text, use);
}

int64_t build(const std::filesystem::path& cache, const TokenSource& source,
              const Tokenizer& tokenizer) {
  // All stamps before any text is read: what changes later does not fit its stamp. A text that
  // changes while it is read would give tokens of neither state, so it is compared once more.
  std::vector<FileStamp> stamps;
  for (const auto& file : source.files) stamps.push_back(stamp_of(file, source.text));
  TokenWriter writer(cache, source.text.progress);
  const RowEncoder encoder(tokenizer, source.form, source.document_separator, source.end_tokens);
  size_t remembered = 0;  // tokens since pages were forgotten
  const UseDocument use = [&](const Document& document) {
    const auto use_ids = [&](std::span<const int32_t> ids) {
      writer.write(ids);
      source.text.tell(ids.size() + 1);
      remembered += ids.size();
      if (document.file == nullptr || remembered < kForgetBytes / kBytesOfToken) return;
      forget_pages(*document.file);
      remembered = 0;
    };
    const ExampleSpan span = source.form == RowForm::kTurns
                                 ? encoder.encode_turns(*document.chat, use_ids, writer.turns)
                                 : encoder.encode(document, use_ids);
    if (source.form != RowForm::kStream) writer.end_row(span);
  };
  const std::string skipped = to_jsonl(for_each_source_row(source, use));
  for (size_t i = 0; i < stamps.size(); ++i) {
    FileStamp read = stamps[i];
    FSDP_CHECK(unchanged(source.files[i], read, source.text),
               "{}: the file changed while its tokens were made; start again when it is complete",
               source.files[i].string());
  }
  Footer footer{};
  footer.tokenizer = tokenizer.identity();
  footer.options = options_hash(source);
  footer.vocab_size = tokenizer.vocab_size();
  return writer.finish(stamps, skipped, footer);
}

}  // namespace

std::string place_of_row(const TokenSource& source, int64_t row) {
  std::string out;
  int64_t next = 0;
  for_each_source_row(source, [&](const Document& document) {
    if (next++ != row) return;
    const MappedFile file(source.files[document.file_number]);
    const std::string_view before = file.text().substr(0, document.place.begin);
    out = fmt::format("{}:{}", file.path().string(), 1 + std::ranges::count(before, '\n'));
  });
  return out;
}

std::filesystem::path token_cache_path(const std::filesystem::path& folder,
                                       const TokenSource& source, const Tokenizer& tokenizer) {
  FSDP_CHECK(!source.files.empty(), "[data] expected at least one file");
  std::string identity = fmt::format("{}\n{}\n", tokenizer.identity(), options_hash(source));
  for (const auto& file : source.files) {
    identity += std::filesystem::absolute(file).lexically_normal().string() + "\n";
  }
  constexpr size_t kShown = 128;  // bytes: a name has 255 at most, with what is temporary
  const std::string name = source.files[0].stem().string();
  size_t end = std::min(name.size(), kShown);
  while (end < name.size() && end > 0 && (name[end] & 0xc0) == 0x80) --end;  // within a character
  return folder / fmt::format("{}-{:016x}.tokens", name.substr(0, end), hash_name(identity));
}

CacheResult make_token_cache(const std::filesystem::path& cache, const TokenSource& source,
                             const Tokenizer& tokenizer) {
  remove_abandoned(cache);
  CacheResult out;
  out.reason = reason_to_build(cache, source, tokenizer, out.tokens);
  if (out.reason.empty()) return out;
  if (cache.has_parent_path()) {
    const auto refuse = [](const std::string& why, int code) {
      throw CacheFolderError("data.cache_dir: " + why, code);
    };
    try {
      make_folders(cache.parent_path());
    } catch (const SystemError& error) {
      refuse(error.what(), error.code());
    }
    if (::access(cache.parent_path().c_str(), W_OK) != 0) {
      const int code = errno;
      refuse(fmt::format("{}: cannot be written: {}", cache.parent_path().string(),
                         std::generic_category().message(code)),
             code);
    }
  }
  out.tokens = build(cache, source, tokenizer);
  remove_abandoned(cache);  // what was too young before
  out.built = true;
  return out;
}

TokenCache::TokenCache(const std::filesystem::path& cache, const Tokenizer& tokenizer,
                       comm::WorkProgress* progress)
    : file_(cache), progress_(progress) {
  const CheckedFooter checked = read_footer(file_, tokenizer);
  FSDP_CHECK(checked.problem.empty(), "{}: this token cache cannot be used: {}; delete it",
             cache.string(), checked.problem);
  vocab_size_ = checked.footer.vocab_size;
  tokens_ = {reinterpret_cast<const int32_t*>(file_.data()),
             static_cast<size_t>(checked.footer.tokens)};
  examples_ = {
      reinterpret_cast<const ExampleSpan*>(file_.data() + place_of_examples(checked.footer)),
      static_cast<size_t>(checked.footer.examples)};
  turns_ = {reinterpret_cast<const RowTurn*>(file_.data() + place_of_turns(checked.footer)),
            static_cast<size_t>(checked.footer.turns)};
  skipped_ = file_.text().substr(file_.size() - sizeof(Footer) - checked.footer.skipped,
                                 checked.footer.skipped);
  checked_.resize(blocks_of(tokens_.size()));
  const std::string_view spans(reinterpret_cast<const char*>(examples_.data()),
                               examples_.size_bytes());
  checksum_ = checksum(
      file_.text().substr(bytes_of_tokens(checked.footer), bytes_of_checksums(checked.footer)));
  if (!examples_.empty()) checksum_ ^= checksum(spans);
  if (!turns_.empty()) {
    checksum_ ^=
        mixed(checksum({reinterpret_cast<const char*>(turns_.data()), turns_.size_bytes()}));
  }
  check_rows();
}

// Rows and turns lie within the tokens.
void TokenCache::check_rows() const {
  size_t begin = 0, turn = 0;
  bool fits = true;
  for (const ExampleSpan& span : examples_) {
    const size_t tokens = span.end - begin;
    fits = fits && span.end >= begin && span.end <= tokens_.size() && span.kept <= tokens;
    if (turns_.empty()) fits = fits && span.answer <= tokens;
    for (size_t i = 0; !turns_.empty() && fits && i < span.answer; ++i, ++turn) {
      fits = turn < turns_.size() && size_t{turns_[turn].first} + turns_[turn].count <= tokens;
    }
    begin = span.end;
  }
  FSDP_CHECK(fits && turn == turns_.size(),
             "{}: this token cache cannot be used: its rows are damaged; delete it",
             path().string());
}

std::span<const int32_t> TokenCache::tokens() const {
  check(0, tokens_.size());
  return tokens_;
}

void TokenCache::check(size_t first, size_t count) const {
  for (size_t block = first / kBlock; block < blocks_of(first + count); ++block) {
    if (!checked_[block]) check_block(block);
    checked_[block] = true;
    if (progress_) progress_->add(kBlock);
    read_bytes_ += kBlock * sizeof(int32_t);
    if (read_bytes_ < kForgetBytes) continue;
    forget_pages(file_);
    read_bytes_ = 0;
  }
}

void TokenCache::check_block(size_t block) const {
  const size_t first = block * kBlock;
  const auto tokens = tokens_.subspan(first, std::min(kBlock, tokens_.size() - first));
  uint64_t expected = 0;
  std::memcpy(&expected, file_.data() + tokens_.size_bytes() + block * sizeof expected,
              sizeof expected);
  FSDP_CHECK(
      checksum({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()}) == expected,
      "{}: this token cache cannot be used: its tokens {} to {} are damaged (their checksum does "
      "not match); delete it",
      path().string(), first, first + tokens.size() - 1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    FSDP_CHECK(
        tokens[i] >= 0 && tokens[i] < vocab_size_,
        "{}: this token cache cannot be used: its token {}: expected 0 to {}, got {}; delete it",
        path().string(), first + i, vocab_size_ - 1, tokens[i]);
  }
}

}  // namespace fsdp::data
