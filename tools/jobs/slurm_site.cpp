// Contract: tools/jobs/slurm_site.h.
#include "tools/jobs/slurm_site.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"

namespace fsdp::tools {
namespace {

// man sbatch
const std::map<char, std::string_view> kLongNames = {
    {'a', "--array"},        {'A', "--account"},    {'b', "--begin"},    {'c', "--cpus-per-task"},
    {'C', "--constraint"},   {'d', "--dependency"}, {'D', "--chdir"},    {'e', "--error"},
    {'G', "--gpus"},         {'i', "--input"},      {'J', "--job-name"}, {'L', "--licenses"},
    {'m', "--distribution"}, {'M', "--clusters"},   {'N', "--nodes"},    {'n', "--ntasks"},
    {'o', "--output"},       {'p', "--partition"},  {'q', "--qos"},      {'t', "--time"},
    {'w', "--nodelist"},     {'W', "--wait"},       {'x', "--exclude"}};

constexpr std::string_view kBlank = " \t\r";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace

std::string SbatchOption::text() const {
  if (value.empty()) return name;
  const bool quotes = value.find(' ') != std::string::npos && value.find('"') == std::string::npos;
  return name + "=" + (quotes ? '"' + value + '"' : value);
}

SbatchOption parse_sbatch(const std::string& text, const std::string& place) {
  const std::string_view all = trimmed(text);
  FSDP_CHECK(all.size() > 1 && all.front() == '-',
             "{}: expected an option of sbatch, such as --partition=gpu, got \"{}\"", place, all);
  SbatchOption option = {.name = "", .value = "", .place = place};
  size_t end = 2;  // of the name
  if (all[1] == '-') {
    end = std::min(all.find_first_of("= \t"), all.size());
    option.name = all.substr(0, end);
  } else {
    const auto known = kLongNames.find(all[1]);
    FSDP_CHECK(known != kLongNames.end(), "{}: {}: give the option's long name", place,
               all.substr(0, 2));
    option.name = known->second;
  }
  std::string_view value = trimmed(all.substr(end));
  if (value.starts_with("=")) value.remove_prefix(1);
  option.value = trimmed(value);
  const bool two = value.starts_with("-") || value.find(" -") != std::string_view::npos;
  FSDP_CHECK(!two || value.starts_with("\""), "{}: expected one option in a line, got \"{}\"",
             place, all);
  return option;
}

// man sbatch, "--time".
std::optional<int64_t> slurm_seconds(const std::string& time, const std::string& place) {
  std::string word = time;
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::toupper(c); });
  if (word == "UNLIMITED" || word == "INFINITE" || word == "-1") return {};
  static const std::regex kForms(
      "(?:([0-9]{1,6})-([0-9]{1,6})(?::([0-9]{1,6}))?(?::([0-9]{1,6}))?)|"
      "(?:(?:([0-9]{1,6}):(?=[0-9]+:))?([0-9]{1,9})(?::([0-9]{1,6}))?)");
  std::smatch part;
  FSDP_CHECK(std::regex_match(time, part, kForms),
             "{}: --time: expected minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED, got "
             "\"{}\"",
             place, time);
  const auto number = [&](size_t i) { return part[i].matched ? std::stoll(part[i].str()) : 0; };
  const int64_t seconds =
      ((number(1) * 24 + number(2) + number(5)) * 60 + number(3) + number(6)) * 60 + number(4) +
      number(7);
  return seconds == 0 ? std::nullopt : std::optional(seconds);
}

SlurmSite read_site(const std::filesystem::path& file) {
  SlurmSite site;
  std::istringstream text(read_file(file));
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::string place = fmt::format("{}:{}", file.string(), number);
    constexpr std::string_view kMark = "#SBATCH";
    if (line.starts_with(kMark)) {
      // "--time=1:00:00 # a day": what is behind a blank and # is a comment, for sbatch too.
      const std::string given = line.substr(kMark.size());
      site.options.push_back(parse_sbatch(given.substr(0, given.find(" #")), place));
    } else if (!line.starts_with("#!") && !trimmed(line).empty()) {
      site.lines.push_back(line);
    }
  }
  return site;
}

}  // namespace fsdp::tools
