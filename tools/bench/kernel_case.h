// One line of the table of kernels that `fsdp bench kernels` measures: a call as kernels/meta
// describes it, made again on memory of a device. The calls are those of a step of the model, of an
// evaluation and of a generation, without bytes; what the model does not call is called as models
// of other families call it. A few calls are in the table of every model. Kernels of flat shards
// are lines of kernel_shard.cpp, attention of documents is in kernel_documents.cpp. A test holds
// the table against the list of kernels. Not here: measuring (tools/bench/kernel_bench.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/meta/kernel_call.h"
#include "kernels/meta/meta_backend.h"
#include "models/config.h"

namespace fsdp::tools {

// The sizes that `fsdp bench kernels` works in: those of a model, some of them changed by name.

struct KernelExtents {
  models::ModelConfig model;
  int64_t batch = 0;
  int64_t length = 0;  // tokens of a sequence
  DType compute = DType::kF32;
  DType gradient = DType::kF32;  // of weights
  int64_t elements = 0;          // of a flat shard, for the optimizer's kernels
  // Lengths of the documents of every row, for attention between their tokens alone; empty: not
  // measured.
  std::vector<int64_t> documents = {};
};

struct KernelExtentsOptions {
  std::string model = "gpt2-124m";  // a Hugging Face folder or the name of a preset
  std::string shape;                // "hidden=1024,ffn=4096": changes of the model's sizes
  int64_t batch = 4;
  int64_t length = 64;  // tokens of a sequence
  DType dtype = DType::kF32;
  std::string documents = "";  // "8" of like lengths, or lengths of all tokens: "131,400,77"
};
// Unless `shape` says otherwise the flat shard has as many elements as the model's blocks and its
// root on average. Error names the size that is unknown or does not fit.
KernelExtents kernel_extents(const KernelExtentsOptions& options);

// ----

// What a kernel has to reach on a GPU; 0: nothing is asked. On a CPU the bars mean nothing.
struct KernelBar {
  double percent_of_copy = 0;  // of the device's own copy rate
  double tflops = 0;           // bf16 and f16 on an H100 or H200
};
constexpr KernelBar kStreamingBar = {.percent_of_copy = 80};     // reads and writes, once each
constexpr KernelBar kColumnSumBar = {.percent_of_copy = 70};     // and adds up over rows
constexpr KernelBar kOptimizerBar = {.percent_of_copy = 85};     // one flat stream
constexpr KernelBar kCrossEntropyBar = {.percent_of_copy = 75};  // two passes over a row
// 70 % of FlashAttention-2 on an H100 (figures of its repository): the instructions are the same.
constexpr KernelBar kAttentionForwardBar = {.tflops = 210};
constexpr KernelBar kAttentionBackwardBar = {.tflops = 185};

// Makes what kernels read: random numbers, because a GPU's clock depends on the data.
class KernelInputs {
 public:
  explicit KernelInputs(Backend& backend) : backend_(backend) {}

  Tensor empty(Shape shape, DType dtype) const;
  Tensor normal(Shape shape, DType dtype);  // repeats after kBlock elements
  Tensor constant(Shape shape, DType dtype, double value) const;
  Tensor indices(Shape shape, int64_t below) const;  // i32 within [0, below)
  Tensor of(const meta::TensorForm& form);           // what its role asks for
  Backend& backend() const { return backend_; }

 private:
  static constexpr int64_t kBlock = int64_t{1} << 20;

  Backend& backend_;
  std::map<DType, Tensor> blocks_;
};

// The inputs of one call: inputs that share memory in the call share it here.
class KernelInputSet final : public meta::CallTensors {
 public:
  explicit KernelInputSet(KernelInputs& inputs) : inputs_(inputs) {}
  Tensor make(const meta::TensorForm& form) override;

 private:
  KernelInputs& inputs_;
  std::map<const void*, Tensor> by_address_;
};

struct KernelCase {
  std::string variant;  // of arguments; may be empty
  std::string shape;    // for people
  KernelBar bar;        // the call costs 0, 0: a few scalars
  meta::KernelCall call;
  std::string kernel = std::string(call.kernel);

  std::string name() const { return variant.empty() ? kernel : kernel + " " + variant; }
};

// All lines. Those whose name contains `filter` ("" all). Error when there are documents, and
// attention of documents is not among these lines.
std::vector<KernelCase> kernel_table(const KernelExtents& extents, const std::string& filter = "");

// Two of them in any size.
KernelCase product_line(const MatmulExtents& e);
KernelCase copy_line(int64_t elements, DType dtype);

// The lines whose size is that of a flat shard, which no step of the model has.
void add_shard_kernels(const KernelExtents& extents, std::vector<KernelCase>& table);

// ---- Rows of several documents (kernel_documents.cpp) ----

// The lengths that --documents gives rows of `length` tokens. Error for a text without such
// lengths.
std::vector<int64_t> document_lengths(const std::string& text, int64_t length);
// Adds, behind the attention of a training step on whole rows, the same on rows of
// extents.documents. Its cost counts the pairs of tokens that see each other.
void add_documents(const KernelExtents& extents, std::vector<KernelCase>& table);

}  // namespace fsdp::tools
