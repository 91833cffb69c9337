// Reading the table, and the bytes of a call.
#include "tools/plan/other_programs.h"

#include <algorithm>
#include <map>

#include "core/autograd.h"
#include "tools/predict/machine_files.h"
#include "tools/predict/record_file.h"

namespace fsdp::tools {
static void read_member(const Json& json, const std::string& where, Again& again) {
  const std::map<std::string, Again> known = {
      {"all", Again::kAll}, {"to the last saved", Again::kToLastSaved}, {"half", Again::kHalf}};
  std::string text;
  RecordReader::read(json, where, text);
  const auto found = known.find(text);
  FSDP_CHECK(found != known.end(), "{}: expected all, to the last saved or half, got \"{}\"", where,
             text);
  again = found->second;
}

template <typename File>
void visit(File& file, BlockBytes& bytes) {
  file("hidden", bytes.hidden);
  file.optional("kv", bytes.kv);
  file.optional("ffn", bytes.ffn);
  file.optional("scores", bytes.scores);
}

template <typename File>
void visit(File& file, ProgramKernels& program) {
  std::string note;
  file("name", program.name);
  file("model_type", program.model_type);
  file.optional("note", note);
  file("forward", program.forward);
  file("backward", program.backward);
  file.optional("logits", program.logits);
  file.optional("gradients", program.gradients);
  file.optional("gradients_16", program.gradients_16);
  file.optional("update", program.update);
  file.optional("update_own", program.update_own);
  file.optional("host_us", program.host_us);
  file.optional("block_kernels_forward", program.block_kernels_forward);
  file.optional("block_kernels_backward", program.block_kernels_backward);
  file.optional("other_kernels", program.other_kernels);
  file("again", program.again);
  file.optional("selective_keeps_half", program.selective_keeps_half);
  file.optional("products_of_attention", program.products_of_attention);
  file.optional("reduces_last", program.reduces_last);
}

const ProgramKernels* program_of(std::string_view set) {
  static const std::vector<ProgramKernels> kPrograms = [] {
    std::vector<ProgramKernels> out;
    RecordReader::read(parse_json(program_table(), "programs.json"), "programs.json", out);
    return out;
  }();
  const auto found =
      std::find_if(kPrograms.begin(), kPrograms.end(),
                   [&](const ProgramKernels& each) { return set.starts_with(each.name); });
  return found == kPrograms.end() ? nullptr : &*found;
}

ProgramRates::ProgramRates(Rates rates, const ProgramKernels& program, models::ModelConfig model,
                           Job job)
    : CallRates(std::move(rates)), program_(program), model_(std::move(model)), job_(job) {}

// In one pass.
double ProgramRates::block_bytes(const BlockBytes& block) const {
  const auto hidden = static_cast<double>(model_.hidden);
  const auto kv = static_cast<double>(model_.kv_heads * model_.head_dim);
  const double token = block.hidden * hidden + block.kv * (hidden + kv) +
                       block.ffn * static_cast<double>(model_.ffn) +
                       block.scores * static_cast<double>(model_.heads * job_.length);
  return token * static_cast<double>(job_.tokens);
}

// Of backward with the kernels of a block's gradients, an equal share each.
double ProgramRates::attention_bytes(bool forward) const {
  if (forward) return block_bytes(program_.forward);
  const double each = job_.reduces_16 ? program_.gradients_16 : program_.gradients;
  return block_bytes(program_.backward) +
         each * static_cast<double>(model_.parameter_count()) / static_cast<double>(model_.layers);
}

bool ProgramRates::is_left_out(const MatmulExtents& extents) {
  if (!tape_ || !tape_->recomputing()) return false;
  if (job_.again == Again::kHalf) return products_again_++ % 2 == 0;
  return job_.again == Again::kToLastSaved && extents.k == model_.ffn && extents.n == model_.hidden;
}

// Without a fused kernel: scores of T x d, d x T, and T x T, T x d, of every head. The cost of the
// fused one has half of the pairs, and in backward the scores once more: five products.
double ProgramRates::attention_seconds(const meta::KernelCall& call) {
  if (!program_.products_of_attention) return CallRates::kernel_seconds(call);
  const double products = call.kernel == "attention_forward" ? 1 : 0.8;
  const ProductHalves& half = rates().product_half;
  const auto keys = static_cast<double>(call.attention->keys);
  const double slower = (1 + half.m / keys) * (1 + half.n / keys) *
                        (1 + half.k / static_cast<double>(call.attention->head_dim));
  return 2 * products * static_cast<double>(call.cost.flops) / rates().flops_per_s.at(call.dtype) *
         slower;
}

double ProgramRates::kernel_seconds(const meta::KernelCall& call) {
  if (call.product) return is_left_out(*call.product) ? 0 : CallRates::kernel_seconds(call);
  const auto moved_s = [&](double bytes) { return bytes / rates().memory_bytes_per_s; };
  if (call.attention) {
    const bool forward = call.kernel == "attention_forward";
    host_s_ = 1e-6 * program_.host_us *
              (forward ? program_.block_kernels_forward : program_.block_kernels_backward);
    const bool kept = tape_ && tape_->recomputing() && job_.again == Again::kHalf;
    return (kept ? 0 : attention_seconds(call)) + moved_s(attention_bytes(forward));
  }
  if (call.kernel == "cross_entropy") {  // of a part of the rows
    const auto elements = static_cast<double>(call.elements);
    host_s_ = 1e-6 * program_.host_us * program_.other_kernels * elements /
              static_cast<double>(job_.tokens * model_.vocabulary);
    return moved_s(program_.logits * elements);
  }
  if (call.kernel == "adamw") {
    return moved_s((program_.update * job_.shards + program_.update_own) *
                   static_cast<double>(call.elements));
  }
  return 0;
}

double ProgramRates::issue_seconds() {
  return CallRates::issue_seconds() + std::exchange(host_s_, 0);
}

}  // namespace fsdp::tools
