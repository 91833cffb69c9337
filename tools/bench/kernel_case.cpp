// The calls of steps without bytes become the lines of the table; the inputs of the lines.
#include "tools/bench/kernel_case.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/kernel_args.h"
#include "core/ops/cross_entropy.h"
#include "tools/bench/bench_step.h"
#include "tools/predict/machines.h"
#include "tools/predict/model_use.h"

namespace fsdp::tools {
namespace {

models::ModelConfig model_named(const std::string& name) {
  if (std::filesystem::is_directory(name)) return models::read_config(name + "/config.json");
  return models::preset(name);
}

std::map<std::string, int64_t*> sizes_by_name(KernelExtents& extents) {
  models::ModelConfig& model = extents.model;
  return {
      {"hidden", &model.hidden},      {"heads", &model.heads}, {"kv_heads", &model.kv_heads},
      {"head_dim", &model.head_dim},  {"ffn", &model.ffn},     {"vocabulary", &model.vocabulary},
      {"elements", &extents.elements}};
}

// One of "hidden=1024".
void change_size(const std::string& text, const std::map<std::string, int64_t*>& sizes) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const auto found = sizes.find(name);
  if (found == sizes.end()) {
    std::vector<std::string> names;
    for (const auto& [known, size] : sizes) names.push_back(known);
    fail("--shape: expected NAME=NUMBER with one of {}; got \"{}\"", fmt::join(names, ", "), text);
  }
  const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
  const char* const end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, *found->second);
  FSDP_CHECK(error == std::errc() && rest == end && *found->second > 0,
             "--shape: {}: expected a positive number, got \"{}\"", name, value);
}

}  // namespace

KernelExtents kernel_extents(const KernelExtentsOptions& options) {
  KernelExtents extents = {.model = model_named(options.model),
                           .batch = options.batch,
                           .length = options.length,
                           .compute = options.dtype,
                           .gradient = accumulation_dtype(options.dtype)};
  const std::map<std::string, int64_t*> sizes = sizes_by_name(extents);
  for (size_t begin = 0; begin < options.shape.size();) {
    const size_t end = std::min(options.shape.find(',', begin), options.shape.size());
    change_size(options.shape.substr(begin, end - begin), sizes);
    begin = end + 1;
  }
  const models::ModelConfig& model = extents.model;
  models::validate(model);
  if (extents.elements == 0) extents.elements = model.parameter_count() / (model.layers + 1);
  const bool learned = model.positions == models::PositionKind::kLearned;
  FSDP_CHECK(!learned || options.length <= model.max_positions,
             "--seq: expected at most the {} positions of {}, got {}", model.max_positions,
             options.model, options.length);
  if (!options.documents.empty()) {
    extents.documents = document_lengths(options.documents, options.length);
  }
  return extents;
}

Tensor KernelInputs::empty(Shape shape, DType dtype) const {
  return Tensor::empty(backend_, shape, dtype, MemoryCategory::kWorkspace);
}

Tensor KernelInputs::normal(Shape shape, DType dtype) {
  Stream& stream = backend_.compute_stream();
  Tensor& block = blocks_[dtype];
  if (!block.defined()) {
    block = empty(Shape{kBlock}, dtype);
    backend_.run(stream, FillNormalArgs{block, 0, 1, /*seed=*/0, hash_name("bench kernels"), 0});
  }
  Tensor out = empty(shape, dtype);
  auto* data = static_cast<std::byte*>(out.data());
  for (size_t done = 0; done < out.bytes(); done += block.bytes()) {
    backend_.copy(stream, data + done, block.data(), std::min(block.bytes(), out.bytes() - done));
  }
  return out;
}

Tensor KernelInputs::constant(Shape shape, DType dtype, double value) const {
  Tensor out = empty(shape, dtype);
  backend_.run(backend_.compute_stream(), FillNormalArgs{out, value, 0, 0, 0, 0});
  return out;
}

Tensor KernelInputs::indices(Shape shape, int64_t below) const {
  const uint64_t stream = hash_name("bench indices");
  std::vector<int32_t> values;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const double at = uniform_at(/*seed=*/0, stream, static_cast<uint64_t>(i));
    values.push_back(static_cast<int32_t>(at * static_cast<double>(below)));
  }
  return Tensor::from_host<int32_t>(backend_, shape, values, MemoryCategory::kWorkspace);
}

Tensor KernelInputs::of(const meta::TensorForm& form) {
  using Content = TensorRole::Content;
  const auto& [shape, dtype, address, role] = form;
  if (role.content == Content::kIndices) return indices(shape, role.below);
  const double value = role.content == Content::kOnes ? 1 : 0;
  if (is_floating(dtype)) {
    if (role.content != Content::kNumbers) return constant(shape, dtype, value);
    return role.use == TensorRole::Use::kOut ? empty(shape, dtype) : normal(shape, dtype);
  }
  Tensor out = empty(shape, dtype);
  const std::vector<int64_t> wide(static_cast<size_t>(shape.numel()), static_cast<int64_t>(value));
  const std::vector<int32_t> narrow(wide.begin(), wide.end());
  out.write(dtype == DType::kI64 ? static_cast<const void*>(wide.data()) : narrow.data());
  return out;
}

Tensor KernelInputSet::make(const meta::TensorForm& form) {
  Tensor& tensor = by_address_[form.address];
  if (!tensor.defined()) tensor = inputs_.of(form);
  return {tensor.storage(), tensor.byte_offset(), form.shape, form.dtype};
}

namespace {

// Other families: a kernel that the model's own step does not call is measured as theirs call it.
constexpr std::array kOtherFamilies = {"gpt2", "gpt_neox", "bloom", "llama", "workshop_gpt"};

models::ModelConfig in_sizes_of(const KernelExtents& extents, const char* family) {
  models::ModelConfig model = models::family_defaults(family);
  const models::ModelConfig& sizes = extents.model;
  model.hidden = sizes.hidden;
  model.heads = model.kv_heads = sizes.heads;
  model.head_dim = sizes.head_dim;
  model.ffn = sizes.ffn;
  model.vocabulary = sizes.vocabulary;
  model.max_positions = std::max(sizes.max_positions, extents.length);
  model.rope.fraction = 1;  // of any head_dim that is even
  if (model.head_dim % 2 != 0 && model.positions == models::PositionKind::kRope) {
    model.positions = models::PositionKind::kNone;
  }
  model.residual_dropout = 0.1;
  return model;
}

std::vector<std::string> parts_of(const std::string& text, const std::string& between) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(between, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + between.size();
  }
  return out;
}

// The call works on one token of each row: a text is continued.
bool is_of_one_token(const meta::KernelCall& call) {
  const std::vector<std::string> extents = parts_of(call.shape, " x ");
  return extents.size() > 2 && extents[1] == "1";
}

// The distinct calls on whole tensors of a training step, of an evaluation, and of the generation
// of each row's last token. One block stands for all.
std::vector<meta::KernelCall> calls_of(const KernelExtents& extents, models::ModelConfig model,
                                       RecomputeMode recompute = RecomputeMode::kNone) {
  model.layers = 1;
  std::vector<meta::KernelCall> calls;
  bool generates = false;
  const auto note = [&](const meta::KernelCall& call) -> std::optional<double> {
    const bool of_cache =
        call.kernel == CopyHeadsArgs::name() || (call.attention && is_of_one_token(call));
    if (call.elements > 1 && (of_cache || !generates)) calls.push_back(call);
    return std::nullopt;
  };
  MetaRun run(bench_session({.model = std::move(model),
                             .batch = extents.batch,
                             .length = extents.length,
                             .dtype = extents.compute,
                             .fsdp = {},
                             .recompute = recompute},
                            {}),
              /*ranks=*/1);
  dynamic_cast<meta::MetaBackend&>(run.session().backend())
      .set_times(std::make_shared<CallRates>(machine_rates(kUsualMachine), note));
  run.step({extents.batch, extents.length});
  run.evaluate({extents.batch, extents.length});
  generates = true;
  const std::vector<int32_t> prompt(static_cast<size_t>(extents.length - 1));
  const std::vector prompts(static_cast<size_t>(extents.batch), prompt);
  use_of_generation({.tokens = 2}, prompts, extents.batch, extents.model.vocabulary)
      .work(run, extents.batch);
  return calls;
}

// A call with the words that the text of the call lacks.
struct NamedCall {
  meta::KernelCall call;
  std::string variant = {};  // empty: from the text
};

meta::KernelCall product_call(const MatmulExtents& e, Activation activation) {
  meta::MetaBackend meta;
  const bool plain = activation == Activation::kNone;
  const Tensor a = Tensor::empty(meta, e.a(), e.operand), b = Tensor::empty(meta, e.b(), e.operand);
  const Tensor bias = Tensor::empty(meta, Shape{e.n}, e.operand);
  Tensor c = Tensor::empty(meta, e.c(), e.result), before = Tensor::empty(meta, e.c(), e.result);
  return meta::kernel_call(MatmulArgs{.a = a,
                                      .b = b,
                                      .c = c,
                                      .transpose_a = e.transpose_a,
                                      .transpose_b = e.transpose_b,
                                      .accumulate = e.accumulate,
                                      .bias = plain ? nullptr : &bias,
                                      .activation = activation,
                                      .pre_activation = plain ? nullptr : &before});
}

// Calls that the table has for every model, so that tables can be compared.
std::vector<NamedCall> calls_for_all(const KernelExtents& extents) {
  const models::ModelConfig& model = extents.model;
  const int64_t B = extents.batch, T = extents.length, N = B * T, F = model.ffn;
  const int64_t V = model.vocabulary, half = model.rotary_dim() / 2;
  const DType dtype = extents.compute, wide = accumulation_dtype(dtype);
  meta::MetaBackend meta;
  const auto tensor = [&](Shape shape, DType of) { return Tensor::empty(meta, shape, of); };
  std::vector<NamedCall> out;
  const auto add = [&](Kernel kernel, const std::string& variant = "") {
    out.push_back({meta::kernel_call(kernel), variant});
  };
  const MatmulExtents up = {.m = N, .n = F, .k = model.hidden, .operand = dtype, .result = dtype};
  out.push_back({product_call(up, Activation::kGeluTanh)});
  const Tensor x = tensor({N, F}, dtype), dy = tensor({N, F}, dtype);
  Tensor y = tensor({N, F}, dtype), sums = tensor(Shape{F}, extents.gradient);
  for (const Activation kind :
       {Activation::kGeluTanh, Activation::kGeluErf, Activation::kGeluBloom, Activation::kRelu}) {
    add(ActivationForwardArgs{kind, x, y});
    add(ActivationBackwardArgs{kind, x, dy, y});
  }
  const Tensor halves = tensor({N, 2 * F}, dtype);
  Tensor gradients = tensor({N, 2 * F}, dtype);
  add(GluForwardArgs{Activation::kSilu, halves, nullptr, y});
  add(GluBackwardArgs{Activation::kSilu, halves, nullptr, dy, gradients, nullptr});
  add(SumRowsArgs{.x = x, .out = sums});
  const Tensor from = tensor({B, T, model.heads * model.head_dim}, dtype);
  const Tensor to = tensor(from.shape(), dtype);
  const Tensor cos = tensor({T, half}, wide), sin = tensor({T, half}, wide);
  const HeadView view = {&from, model.heads, model.head_dim, 0, model.head_dim};
  const HeadView cache = {&to, model.heads, model.head_dim, 0, model.head_dim};
  add(RopeArgs{view, cos, sin});
  add(RopeArgs{.x = view, .cos = cos, .sin = sin, .inverse = true}, "inverse");
  add(CopyHeadsArgs{view, cache, 0});
  if (dtype != DType::kBF16) return out;
  const int64_t rows = ops::head_chunk_rows(N, V, dtype, ops::HeadOptions().chunk_bytes);
  const Tensor labels = tensor(Shape{rows}, DType::kI32);
  Tensor logits = tensor({rows, ops::logits_row(V)}, dtype), loss_sum = tensor(Shape{}, wide);
  add(CrossEntropyArgs{logits, V, labels, loss_sum});
  add(CrossEntropyArgs{logits, V, labels, loss_sum, &logits});
  return out;
}

// ---- Names ----

// What distinguishes a call from others of its kernel, and how large it is.
struct CallText {
  std::string variant, shape;
};

// "a^T b, added" is the product of a weight gradient. A bias alone is not named.
CallText text_of_product(const MatmulExtents& e, const std::vector<std::string>& words) {
  std::string variant = fmt::format("{}{}{}", e.transpose_a ? "a^T " : "a ",
                                    e.transpose_b ? "b^T" : "b", e.accumulate ? ", added" : "");
  const std::string& last = words.empty() ? variant : words.back();  // its activation
  if (!words.empty() && last != "bias" && last != "added" && !last.ends_with("transposed")) {
    const bool has_bias = std::find(words.begin(), words.end(), "bias") != words.end();
    variant = fmt::format("{}with {}{}", variant == "a b" ? "" : variant + " ",
                          has_bias ? "bias and " : "", last == "gelu_tanh" ? "gelu" : last);
  }
  return {variant,
          fmt::format("{} x {} x {}{}", e.m, e.n, e.k,
                      e.result == e.operand ? "" : fmt::format(" -> {}", name_of(e.result)))};
}

// "4 x 64 of 64, 12/4 heads of 64": sequences, queries, keys. Takes the words that it says.
std::string shape_of_heads(const meta::KernelCall& call, const models::ModelConfig& model,
                           std::vector<std::string>& words) {
  const std::vector<std::string> extents = parts_of(call.shape, " x ");
  std::string heads = parts_of(words[0], " ")[call.kernel == RopeArgs::name() ? 2 : 0];
  words.erase(words.begin());
  std::erase_if(words, [&](const std::string& word) {
    if (word.ends_with(" of keys")) heads += "/" + parts_of(word, " ")[0];
    const bool usual_bias = word == "bias" && model.positions == models::PositionKind::kAlibi;
    return word.ends_with(" keys") || usual_bias;
  });
  const std::string keys = call.attention ? fmt::format(" of {}", call.attention->keys) : "";
  return fmt::format("{} x {}{}, {} heads of {}", extents[0], extents[1], keys, heads,
                     model.head_dim);
}

// "256 x 768" of "4 x 64 x 768". Columns that are not computed with, and the second half of rows of
// two halves, do not count.
std::string shape_of_rows(const std::string& extents, std::vector<std::string>& words) {
  const std::vector<std::string> parts = parts_of(extents, " x ");
  int64_t rows = 1, columns = std::stoll(parts.back());
  for (size_t i = 0; i + 1 < parts.size(); ++i) rows *= std::stoll(parts[i]);
  std::erase_if(words, [&](const std::string& word) {
    if (word == "halves of rows") columns /= 2;
    if (word.ends_with(" columns")) columns = std::stoll(word);
    return word == "halves of rows" || word.ends_with(" columns");
  });
  return fmt::format("{} x {}", rows, columns);
}

CallText text_of(const meta::KernelCall& call, const models::ModelConfig& model) {
  const std::vector<std::string> sides = parts_of(call.shape, "; ");
  std::vector<std::string> words = parts_of(sides.size() > 1 ? sides[1] : "", ", ");
  if (call.product) return text_of_product(*call.product, words);
  const std::string_view kernel = call.kernel;
  const bool of_heads =
      call.attention || kernel == RopeArgs::name() || kernel == CopyHeadsArgs::name();
  const bool of_loss = kernel == CrossEntropyArgs::name(), of_glu = kernel.starts_with("glu_");
  const bool two_tensors = of_glu && words.back() != "halves of rows";
  CallText out = {"", of_heads ? shape_of_heads(call, model, words)
                               : shape_of_rows(parts_of(sides[0], ", ").front(), words)};
  if (call.attention && is_of_one_token(call)) out.variant = "of one query";
  if (of_loss && call.dtype == DType::kBF16) out.variant = "of bf16 logits";
  if (two_tensors) out.variant = "of two tensors";
  const std::set<std::string> tensors = {"residual", "dsum", "positions", "dbias", "gradient"};
  for (const std::string& word : words) {
    if (kernel.ends_with("norm_backward") && word != "dsum") continue;  // all have the others
    if (of_glu && word == name_of(Activation::kSilu)) continue;
    if (of_loss && word != "gradient") continue;  // its dtype
    if (word.starts_with("window ")) {
      out.shape += ", " + word;
    } else {
      out.variant += fmt::format("{}{}{}", out.variant.empty() ? "" : " ",
                                 tensors.contains(word) ? "with " : "", word);
    }
  }
  return out;
}

KernelBar bar_of(const meta::KernelCall& call, const std::string& variant) {
  if (call.product) return {};
  if (call.attention) {
    if (variant.starts_with("of one query")) return kStreamingBar;
    if (size_of(call.dtype) != 2) return {};
    return call.kernel == AttentionForwardArgs::name() ? kAttentionForwardBar
                                                       : kAttentionBackwardBar;
  }
  if (call.kernel == CrossEntropyArgs::name()) return kCrossEntropyBar;
  const bool adds_up_columns = call.kernel.ends_with("norm_backward") ||
                               call.kernel.ends_with("embedding_backward") ||
                               call.kernel == PositionBackwardArgs::name() ||
                               call.kernel == SumRowsArgs::name() || variant.ends_with("dbias");
  return adds_up_columns ? kColumnSumBar : kStreamingBar;
}

}  // namespace

KernelCase product_line(const MatmulExtents& e) {
  return {"square", "", {}, product_call(e, Activation::kNone)};
}

std::vector<KernelCase> kernel_table(const KernelExtents& extents, const std::string& filter) {
  std::vector<KernelCase> table, shards;
  std::set<std::string_view> of_shards;
  std::set<std::string> names;
  std::set<std::pair<std::string, std::string>> lines;
  add_shard_kernels(extents, shards);
  for (const KernelCase& line : shards) of_shards.insert(line.call.kernel);
  const auto add = [&](const meta::KernelCall& call, bool of_new_name = false,
                       const std::string& variant = "") {
    if (of_shards.contains(call.kernel)) return;
    CallText text = text_of(call, extents.model);
    if (!variant.empty()) text.variant = variant;
    KernelCase line = {text.variant, text.shape, bar_of(call, text.variant), call};
    const bool new_name = names.insert(line.name()).second;
    const bool new_line = lines.emplace(line.name(), line.shape).second;
    if (new_line && (new_name || !of_new_name)) table.push_back(std::move(line));
  };
  for (const meta::KernelCall& call : calls_of(extents, extents.model)) {
    add(call);
    if (call.product) add(product_call(*call.product, Activation::kNone));
  }
  for (const auto& [call, variant] : calls_for_all(extents)) add(call, false, variant);
  for (const char* const family : kOtherFamilies) {
    const auto calls = calls_of(extents, in_sizes_of(extents, family), RecomputeMode::kSelective);
    for (const meta::KernelCall& call : calls) {
      if (!call.product) add(call, true);
    }
  }
  if (!extents.documents.empty()) add_documents(extents, table);
  std::move(shards.begin(), shards.end(), std::back_inserter(table));
  std::erase_if(
      table, [&](const KernelCase& line) { return line.name().find(filter) == std::string::npos; });
  const auto of_documents = [](const KernelCase& line) {
    return line.variant.ends_with("documents");
  };
  FSDP_CHECK(extents.documents.empty() || std::any_of(table.begin(), table.end(), of_documents),
             "--documents: only attention knows documents: expected a --filter that leaves "
             "\"attention_forward documents\" or \"attention_backward documents\", got \"{}\"",
             filter);
  return table;
}

}  // namespace fsdp::tools
