// Cutting a line into names and numbers.
#include "tools/report/metrics_line.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

namespace fsdp::tools {
namespace {

constexpr std::string_view kSpaces = " \t\r";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

template <typename T>
std::optional<T> number_in(std::string_view text) {
  T value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_value(std::string_view text) {
  if (text == "null") return true;
  // from_chars() also takes the names of values that are no numbers.
  return text.find_first_of("in") == text.npos && number_in<double>(text);
}

}  // namespace

std::optional<MetricsLine> MetricsLine::read(std::string_view line) {
  line = trimmed(line);
  if (!line.starts_with('{') || !line.ends_with('}')) return std::nullopt;
  MetricsLine out;
  out.values_.reserve(12);
  for (std::string_view rest = line.substr(1, line.size() - 2); !rest.empty();) {
    const size_t end = std::min(rest.find(','), rest.size());
    const std::string_view pair = rest.substr(0, end);
    const size_t colon = pair.find(':');
    if (colon == pair.npos) return std::nullopt;
    const std::string_view name = trimmed(pair.substr(0, colon));
    const std::string_view value = trimmed(pair.substr(colon + 1));
    if (name.size() < 2 || name.front() != '"' || name.back() != '"') return std::nullopt;
    if (!is_value(value)) return std::nullopt;
    out.values_.emplace_back(name.substr(1, name.size() - 2), value);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const std::optional<int64_t> step = number_in<int64_t>(out.text("step"));
  if (!step || (out.text("loss").empty() && !out.is_evaluation())) return std::nullopt;
  out.step_ = *step;
  return out;
}

std::string_view MetricsLine::text(std::string_view key) const {
  for (const auto& [name, value] : values_) {
    if (name == key) return value;
  }
  return {};
}

std::optional<double> MetricsLine::number(std::string_view key) const {
  return number_in<double>(text(key));
}

void for_each_line(
    std::string_view text,
    const std::function<void(std::string_view line, const std::optional<MetricsLine>& read)>& use) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, std::min(end + 1, text.size()));
    use(line, MetricsLine::read(text.substr(0, end)));
    text.remove_prefix(line.size());
  }
}

LogEnd read_log_end(const std::filesystem::path& file) {
  constexpr std::streamoff kEnd = 64 << 10;  // bytes
  LogEnd out;
  std::ifstream log(file, std::ios::binary | std::ios::ate);
  if (!log) return out;
  log.seekg(std::max<std::streamoff>(log.tellg() - kEnd, 0));
  std::optional<double> first_step, first_wall;
  for (std::string text; std::getline(log, text);) {
    const auto line = MetricsLine::read(text);
    if (!line) continue;
    if (line->is_evaluation()) {
      out.validation_loss = line->number("validation_loss");
      continue;
    }
    out.step = line->step();
    out.loss = line->number("loss");
    out.tokens_per_s = line->number("tokens_per_s");
    out.wall_time_s = line->number("wall_time_s");
    out.true_tokens = line->number("true_tokens");
    out.samples = line->number("samples");
    if (first_wall) continue;
    first_step = out.step;
    first_wall = out.wall_time_s;
  }
  if (first_wall && out.wall_time_s && *out.wall_time_s > *first_wall)
    out.steps_per_s = (*out.step - *first_step) / (*out.wall_time_s - *first_wall);
  return out;
}

KeptLines metrics_until(std::string_view text, int64_t step, int64_t validated_at,
                        const LoggedSteps& logged) {
  KeptLines kept;
  int64_t last_step = -1, last_evaluation = -1;
  for_each_line(text, [&](std::string_view line, const std::optional<MetricsLine>& read) {
    if (!line.ends_with('\n')) return;  // cut
    if (!read) {                        // cut by the end of the machine, or of somebody else
      ++kept.foreign;
      return;
    }
    const bool evaluation = read->is_evaluation();
    int64_t& last = evaluation ? last_evaluation : last_step;
    const int64_t until = evaluation ? validated_at : step;
    if (read->step() > until || read->step() <= last) return;
    const bool finite = read->text("loss") != "null" && read->text("grad_norm") != "null";
    if (!evaluation && read->step() == step && !logged.has(step, finite)) return;
    last = read->step();
    kept.text += line;
  });
  return kept;
}

}  // namespace fsdp::tools
