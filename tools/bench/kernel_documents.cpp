// Lines of the table: attention of rows that hold several documents (AttentionArgs::first_key),
// each behind the line of whole rows. They are the calls of a step on such rows.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "core/layer_args.h"
#include "models/input_rules.h"
#include "tools/bench/bench_step.h"
#include "tools/bench/kernel_case.h"
#include "tools/predict/machines.h"
#include "tools/predict/meta_run.h"

namespace fsdp::tools {
namespace {

constexpr std::string_view kWord = "documents";  // of a call, for first_key

int64_t number_of(const std::string& text, int64_t most) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  FSDP_CHECK(error == std::errc() && rest == end && value > 0,
             "--documents: expected a positive number, or several with commas between them, got "
             "\"{}\"",
             text);
  FSDP_CHECK(value <= most, "--documents: expected at most the {} tokens of --seq, got {}", most,
             value);
  return value;
}

std::vector<int64_t> like_lengths(int64_t documents, int64_t length) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < documents; ++i) {
    lengths.push_back((i + 1) * length / documents - i * length / documents);
  }
  return lengths;
}

std::vector<int32_t> first_keys(const KernelExtents& extents) {
  std::vector<int32_t> out;
  for (int64_t row = 0; row < extents.batch; ++row) {
    int64_t begin = 0;
    for (const int64_t length : extents.documents) {
      out.insert(out.end(), static_cast<size_t>(length), static_cast<int32_t>(begin));
      begin += length;
    }
  }
  return out;
}

// The tensors of a call, the documents among them.
class WithDocuments final : public meta::CallTensors {
 public:
  WithDocuments(meta::CallTensors& tensors, const std::vector<int32_t>& first_key)
      : tensors_(tensors), first_key_(first_key) {}
  Tensor make(const meta::TensorForm& form) override {
    Tensor tensor = tensors_.make(form);
    if (form.role.word == kWord) tensor.write(first_key_.data());
    return tensor;
  }

 private:
  meta::CallTensors& tensors_;
  const std::vector<int32_t>& first_key_;
};

std::vector<meta::KernelCall> calls_of_step(const KernelExtents& extents,
                                            const std::vector<int32_t>& first_key) {
  models::ModelConfig model = extents.model;
  model.layers = 1;
  std::vector<meta::KernelCall> calls;
  const auto note = [&](const meta::KernelCall& call) -> std::optional<double> {
    if (call.attention) calls.push_back(call);
    return std::nullopt;
  };
  Batch batch = synthetic_batch(model, extents.batch, extents.length, /*rank=*/0, /*ranks=*/1,
                                /*rows_per_pass=*/0, {.document = extents.length});
  batch.first_key = first_key;  // its positions are of one document: attention knows none
  MetaRun run(bench_session({.model = std::move(model),
                             .batch = extents.batch,
                             .length = extents.length,
                             .dtype = extents.compute,
                             .fsdp = {}},
                            {}),
              /*ranks=*/1);
  dynamic_cast<meta::MetaBackend&>(run.session().backend())
      .set_times(std::make_shared<CallRates>(machine_rates(kUsualMachine), note));
  run.phase("steps", [&](Session& session) { session.train_step(batch, 0, 0).read(); });
  return calls;
}

}  // namespace

std::vector<int64_t> document_lengths(const std::string& text, int64_t length) {
  std::vector<int64_t> lengths;
  int64_t sum = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    lengths.push_back(number_of(text.substr(begin, end - begin), length));
    sum += lengths.back();
    begin = end + 1;
  }
  if (lengths.size() == 1) return like_lengths(sum, length);
  FSDP_CHECK(sum == length,
             "--documents: expected lengths that add up to the {} tokens of --seq, got {}", length,
             sum);
  return lengths;
}

void add_documents(const KernelExtents& extents, std::vector<KernelCase>& table) {
  const std::vector<int32_t> first_key = first_keys(extents);
  const int64_t pairs = models::document_pairs(first_key, extents.length);
  const int64_t of_rows = extents.batch * extents.length * (extents.length + 1) / 2;
  for (meta::KernelCall& call : calls_of_step(extents, first_key)) {
    const auto whole = std::find_if(table.begin(), table.end(), [&](const KernelCase& line) {
      return line.call.kernel == call.kernel && line.call.elements == call.elements;
    });
    KernelCase line = *whole;
    line.variant += fmt::format("{}{}", line.variant.empty() ? "" : " ", kWord);
    line.shape += fmt::format(", {} {}, {:.1f} % of pairs", extents.documents.size(), kWord,
                              100 * static_cast<double>(pairs) / static_cast<double>(of_rows));
    line.bar = {};  // bars are meant for whole rows
    line.call = call;
    line.call.prepare = [prepare = call.prepare, first_key](meta::CallTensors& tensors) {
      WithDocuments with(tensors, first_key);
      return prepare(with);
    };
    table.insert(whole + 1, std::move(line));
  }
}

}  // namespace fsdp::tools
