// A file of samples: a row of CSV for each, later a row for the mean of several. Not here: columns
// (load_samples.h, host_samples.h), who takes samples (monitor.h).
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "tools/report/line_log.h"

namespace fsdp::tools {

template <size_t N>
using SampleOf = std::array<std::optional<double>, N>;  // none: nobody says

template <size_t N>
struct SumsOf {
  struct Sum {
    double count = 0, sum = 0, squares = 0;
  };
  std::array<Sum, N> of{};

  void add(const SampleOf<N>& sample) {
    for (size_t i = 0; i < N; ++i) {
      if (!sample[i]) continue;
      of[i].count += 1;
      of[i].sum += *sample[i];
      of[i].squares += *sample[i] * *sample[i];
    }
  }
  SampleOf<N> means() const {
    SampleOf<N> means;
    for (size_t i = 0; i < N; ++i) {
      if (of[i].count > 0) means[i] = of[i].sum / of[i].count;
    }
    return means;
  }
};

// "time,..." and "TIME,1.5,,...".
std::string csv_header(std::span<const char* const> columns);
std::string sample_row(std::string_view time, std::span<const std::optional<double>> sample,
                       int digits = 1);
std::string time_now();  // "2025-03-01T12:00:00.250Z"
// Goes on with a file of rows, or begins one with the header. Returns the number of its rows.
int64_t open_rows(LineLog& log, const std::filesystem::path& path, const std::string& header);

// The file's first `detailed` rows, over all starts of a run, are of one sample each; each row
// after them is the mean of `later` samples.
template <size_t N>
class SampleFile {
 public:
  SampleFile(const std::filesystem::path& path, const std::string& header, int digits,
             double detailed, double later)
      : digits_(digits), detailed_(detailed), later_(later) {
    try {
      rows_ = open_rows(log_, path, header);
    } catch (const Error& error) {
      problem_ = error.what();  // who takes the samples needs their means, too
    }
  }

  void add(const SampleOf<N>& sample) {
    row_.add(sample);
    ++samples_;
    const bool detailed = static_cast<double>(rows_) < detailed_;
    if (detailed || static_cast<double>(samples_) >= later_) write_row();
  }
  // Samples without a row get theirs.
  void finish() {
    if (samples_ > 0) write_row();
    log_.retry();
    if (problem_.empty()) problem_ = log_.problem();
  }
  // Why rows are missing; "": none are.
  const std::string& problem() const { return problem_; }

 private:
  void write_row() {
    log_.append(sample_row(time_now(), row_.means(), digits_));
    row_ = {};
    samples_ = 0;
    ++rows_;
  }

  LineLog log_;
  int digits_;
  double detailed_, later_;
  SumsOf<N> row_;  // of the samples that have no row yet
  int64_t samples_ = 0;
  int64_t rows_ = 0;  // in the file, also of earlier starts
  std::string problem_;
};

}  // namespace fsdp::tools
