// Where values come from: folders (complete, prefix-less, wrong in every way at once) and seeds.
// Requirements: S4.12.
#include "models/weights.h"

#include <cmath>
#include <cstring>
#include <map>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "models/names.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

using test::contains;
using test::TempFolder;
using Doubles = std::vector<double>;
using Tensors = std::map<std::string, Shape>;  // what a file is to hold

// Element i of every tensor is i, so that any range shows where it was read.
void write_weights(const TempFolder& folder, const Tensors& tensors) {
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, shape] : tensors) specs.push_back({name, DType::kF32, shape.extents()});
  SafetensorsWriter writer(folder / "model.safetensors", specs);
  for (const SafetensorsSpec& spec : specs) {
    std::vector<float> values(static_cast<size_t>(Shape(spec.shape).numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    writer.write(spec.name, values.data(), values.size() * sizeof(float));
  }
  writer.finish();
}

struct Fixture {
  explicit Fixture(const ModelConfig& config) : model(config, backend, DType::kF32, 8) {}

  Tensors tensors() const {
    Tensors all;
    for (const Parameter* p : model.parameters()) {
      all[hugging_face_name(model.config(), p->name())] = p->shape();
    }
    return all;
  }
  std::string error(const Tensors& tensors) {
    write_weights(folder, tensors);
    return test::error_of([&] { open(); });
  }
  FillFunction open() {
    return from_folder(folder.path().string(), model.config(), model.parameters());
  }
  Doubles filled(const FillFunction& fill, const Parameter& p, int64_t first, int64_t count,
                 DType dtype = DType::kF32) {
    Tensor values = Tensor::zeros(backend, Shape{count}, dtype);
    fill(p, first, values);
    return values.to_doubles();
  }

  cpu::CpuBackend backend;
  CausalLM model;
  TempFolder folder;
};

TEST_CASE("weights: a folder fills any range of any parameter, in f32 and f64") {
  for (const ModelConfig& config : {test::tiny_gpt2(), test::tiny_llama()}) {
    Fixture f(config);
    write_weights(f.folder, f.tensors());
    const FillFunction fill = f.open();
    for (const Parameter* p : f.model.parameters()) {
      for (const DType dtype : {DType::kF32, DType::kF64}) {
        const int64_t first = p->numel() / 3, count = p->numel() - first;
        const Doubles values = f.filled(fill, *p, first, count, dtype);
        CHECK(values.front() == static_cast<double>(first));
        CHECK(values.back() == static_cast<double>(p->numel() - 1));
      }
    }
  }
}

TEST_CASE("weights: names without the base prefix, and tensors that are no parameters") {
  Fixture f(test::tiny_gpt2());
  Tensors bare;
  for (const auto& [name, shape] : f.tensors()) {
    bare[name.substr(std::string("transformer.").size())] = shape;
  }
  bare["h.0.attn.bias"] = Shape{1, 1, 4, 4};
  bare["lm_head.weight"] = Shape{23, 15};
  CHECK(f.error(bare) == "");
}

TEST_CASE("weights: everything that is wrong with a folder is in one error") {
  Fixture f(test::tiny_llama());
  Tensors tensors = f.tensors();
  tensors.erase("lm_head.weight");
  tensors.erase("model.layers.1.mlp.up_proj.weight");
  tensors["model.norm.weight"] = Shape{14};
  tensors["model.layers.0.self_attn.q_proj.weight"] = Shape{13, 24};
  tensors["model.layers.2.input_layernorm.weight"] = Shape{13};
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = Shape{3};
  const std::string error = f.error(tensors);
  CAPTURE(error);
  CHECK(contains(error, f.folder.path().string() + ": tensors do not fit the llama model"));
  CHECK(contains(error, "missing: lm_head.weight (29, 13)"));
  CHECK(contains(error, "missing: model.layers.1.mlp.up_proj.weight (17, 13)"));
  CHECK(contains(error, "shape: model.norm.weight: expected (13), got (14)"));
  CHECK(contains(error,
                 "shape: model.layers.0.self_attn.q_proj.weight: expected (24, 13), "
                 "got (13, 24)"));
  CHECK(contains(error, "unexpected: model.layers.2.input_layernorm.weight"));
  CHECK_FALSE(contains(error, "inv_freq"));
  CHECK(std::count(error.begin(), error.end(), '\n') == 5);
}

TEST_CASE("weights: a vocabulary of another size, and values that are no numbers, are named") {
  Fixture f(test::tiny_llama());
  Tensors tensors = f.tensors();
  tensors["model.embed_tokens.weight"] = Shape{31, 13};
  tensors["lm_head.weight"] = Shape{31, 13};
  const std::string error = f.error(tensors);
  CHECK(contains(error,
                 "shape: model.embed_tokens.weight: expected (29, 13), got (31, 13) "
                 "(vocab_size is 29 in config.json, 31 in the weights)"));
  CHECK(contains(error, "shape: lm_head.weight: expected (29, 13), got (31, 13) (vocab_size"));
  CHECK(std::count(error.begin(), error.end(), '\n') == 2);

  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, shape] : f.tensors()) {
    specs.push_back(
        {name, name == "model.norm.weight" ? DType::kI64 : DType::kF16, shape.extents()});
  }
  SafetensorsWriter writer(f.folder / "model.safetensors", specs);
  for (const SafetensorsSpec& spec : specs) {
    const std::vector<std::byte> zeros(static_cast<size_t>(Shape(spec.shape).numel()) *
                                       size_of(spec.dtype));
    writer.write(spec.name, zeros.data(), zeros.size());
  }
  writer.finish();
  CHECK(contains(test::error_of([&] { f.open(); }),
                 ":\n  dtype: model.norm.weight: expected F32, BF16, F16 or F64, got I64"));
}

TEST_CASE("weights: what a folder lacks is told with what its index forgets") {
  Fixture f(test::tiny_llama());
  write_weights(f.folder, f.tensors());
  std::filesystem::rename(f.folder / "model.safetensors", f.folder / "all");
  std::string listed;
  for (const auto& [name, shape] : f.tensors()) {
    if (name == "model.norm.weight") continue;
    listed += (listed.empty() ? "" : ",") + ("\"" + name + "\":\"all\"");
  }
  f.folder.write("model.safetensors.index.json", "{\"weight_map\":{" + listed + "}}");
  const std::string error = test::error_of([&] { f.open(); });
  CHECK(contains(error, "\n  missing: model.norm.weight (13)\n  note: "));
  CHECK(contains(error, "tensor \"model.norm.weight\" of all is not in its weight_map"));
}

TEST_CASE("weights: of a tied pair either, or both, may be there") {
  ModelConfig config = test::tiny_llama();
  config.tied_head = true;
  Fixture f(config);
  const Tensors tied = f.tensors();
  REQUIRE(tied.count("lm_head.weight") == 0);
  CHECK(f.error(tied) == "");
  Tensors both = tied;
  both["lm_head.weight"] = Shape{29, 13};
  CHECK(f.error(both) == "");
  Tensors head_only = both;
  head_only.erase("model.embed_tokens.weight");
  CHECK(f.error(head_only) == "");
  Tensors none = tied;
  none.erase("model.embed_tokens.weight");
  CHECK(contains(f.error(none), "missing: model.embed_tokens.weight (29, 13)"));
  Fixture untied(test::tiny_llama());
  CHECK(contains(untied.error(head_only), "missing: model.embed_tokens.weight (29, 13)"));
  CHECK(contains(untied.error(tied), "missing: lm_head.weight (29, 13)"));
}

TEST_CASE("weights: a tied head with other values, of whatever dtype, is refused") {
  ModelConfig config = test::tiny_llama();
  config.tied_head = true;
  for (const DType head : {DType::kF32, DType::kF64}) {
    for (const float last : {1.0F, 2.0F}) {
      Fixture f(config);
      std::vector<SafetensorsSpec> specs;
      for (const auto& [name, shape] : f.tensors()) {
        specs.push_back({name, DType::kF32, shape.extents()});
      }
      specs.push_back({"lm_head.weight", head, {29, 13}});
      SafetensorsWriter writer(f.folder / "model.safetensors", specs);
      for (const SafetensorsSpec& spec : specs) {
        const auto numel = static_cast<size_t>(Shape(spec.shape).numel());
        if (spec.name == "lm_head.weight" && head == DType::kF64) {
          Doubles values(numel, 1);
          values.back() = last;
          writer.write(spec.name, values.data(), numel * sizeof(double));
        } else {
          std::vector<float> values(numel, 1);
          if (spec.name == "lm_head.weight") values.back() = last;
          writer.write(spec.name, values.data(), numel * sizeof(float));
        }
      }
      writer.finish();
      const std::string error = test::error_of([&] { f.open(); });
      CHECK((error == "") == (last == 1));
      if (last != 1) {
        CHECK(contains(error,
                       "\n  tied: lm_head.weight: expected absent or equal to "
                       "model.embed_tokens.weight, as tie_word_embeddings says"));
      }
    }
  }
}

// Another value of one element of a file that write_weights() made.
void spoil(const TempFolder& folder, const std::string& tensor, int64_t element) {
  std::string bytes = read_file(folder / "model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const auto file = SafetensorsFile::open(folder / "model.safetensors");
  const size_t begin = sizeof(header) + header + file.entry(tensor).begin;
  bytes[begin + sizeof(float) * static_cast<size_t>(element)] ^= 1;
  folder.write("model.safetensors", bytes);
}

TEST_CASE("weights: ranks compare a copy of the tied head by parts, and together all of it") {
  ModelConfig config = test::tiny_llama();
  config.tied_head = true;
  constexpr int64_t kElements = 29 * 13;
  for (const bool incomplete : {false, true}) {
    for (const int64_t spoiled : {int64_t{0}, kElements / 2, kElements - 1}) {
      Fixture f(config);
      Tensors tensors = f.tensors();
      tensors["lm_head.weight"] = Shape{29, 13};
      if (incomplete) tensors.erase("model.norm.weight");
      write_weights(f.folder, tensors);
      spoil(f.folder, "lm_head.weight", spoiled);
      for (const int64_t ranks : {1, 2, 3, 5}) {
        CAPTURE(ranks);
        CAPTURE(spoiled);
        int64_t refused = 0;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const std::string error = test::error_of([&] {
            from_folder(f.folder.path().string(), config, f.model.parameters(), {rank, ranks});
          });
          const bool told = contains(error, "tied: lm_head.weight");
          refused += told;
          const bool mine =
              kElements * rank / ranks <= spoiled && spoiled < kElements * (rank + 1) / ranks;
          CHECK(told == (mine || incomplete));  // a refused folder: all is said by everyone
          CHECK(contains(error, "missing: model.norm.weight") == incomplete);
        }
        CHECK(refused == (incomplete ? ranks : 1));
      }
    }
  }
}

TEST_CASE("weights: tensors of more dimensions than the program has are named like any other") {
  Fixture f(test::tiny_llama());
  Tensors tensors = f.tensors();
  tensors.erase("model.layers.1.mlp.up_proj.weight");
  std::vector<SafetensorsSpec> specs;
  for (auto& [name, shape] : tensors) specs.push_back({name, DType::kF32, shape.extents()});
  for (SafetensorsSpec& spec : specs) {
    if (spec.name == "model.norm.weight") spec.shape = {1, 1, 1, 1, 1, 1, 1, 1, 13};
  }
  SafetensorsWriter writer(f.folder / "model.safetensors", specs);
  for (const SafetensorsSpec& spec : specs) {
    int64_t numel = 1;
    for (const int64_t extent : spec.shape) numel *= extent;
    const std::vector<float> values(static_cast<size_t>(numel));
    writer.write(spec.name, values.data(), values.size() * sizeof(float));
  }
  writer.finish();
  const std::string error = test::error_of([&] { f.open(); });
  CHECK(
      contains(error, "shape: model.norm.weight: expected (13), got (1, 1, 1, 1, 1, 1, 1, 1, 13)"));
  CHECK(contains(error, "missing: model.layers.1.mlp.up_proj.weight"));
}

TEST_CASE("weights: from scratch is the same for any sharding and dtype") {
  Fixture f(test::tiny_llama());
  const FillFunction fill = from_scratch(42);
  for (const Parameter* p : f.model.parameters()) {
    CAPTURE(p->name());
    const Doubles whole = f.filled(fill, *p, 0, p->numel(), DType::kF64);
    for (const int64_t piece : {1, 3, 64}) {
      Doubles pieces;
      for (int64_t first = 0; first < p->numel(); first += piece) {
        const int64_t count = std::min(piece, p->numel() - first);
        for (const double x : f.filled(fill, *p, first, count, DType::kF64)) pieces.push_back(x);
      }
      CHECK(pieces == whole);
    }
    CHECK(f.filled(fill, *p, 0, p->numel(), DType::kF32) == test::rounded(whole, DType::kF32));
    CHECK(f.filled(fill, *p, 0, p->numel(), DType::kBF16) ==
          test::rounded(f.filled(fill, *p, 0, p->numel(), DType::kF32), DType::kBF16));
  }
}

TEST_CASE("weights: from scratch follows each parameter's initializer") {
  ModelConfig config = test::tiny_gpt2();
  config.hidden = 120;
  config.head_dim = 24;
  config.ffn = 480;
  config.initializer_range = 0.02;
  Fixture f(config);
  const FillFunction fill = from_scratch(1);
  std::map<std::string, double> deviation;
  for (const Parameter* p : f.model.parameters()) {
    const Doubles values = f.filled(fill, *p, 0, p->numel(), DType::kF64);
    double sum = 0, square = 0;
    for (const double x : values) {
      sum += x;
      square += x * x;
    }
    const double count = static_cast<double>(values.size());
    if (p->shape().rank() == 1) {
      const bool norm_weight = p->initializer().mean == 1;
      CHECK(values == Doubles(values.size(), norm_weight ? 1.0 : 0.0));
      CHECK(norm_weight == contains(p->name(), "norm.weight"));
      continue;
    }
    deviation[p->name()] = std::sqrt(square / count);
    CHECK(std::abs(sum / count) < 5 * deviation[p->name()] / std::sqrt(count));
  }
  // GPT-2 scales what adds to the residual stream by 1 / sqrt(2 layers), here 1 / 2.
  CHECK(deviation["blocks.0.attention.qkv.weight"] == doctest::Approx(0.02).epsilon(0.03));
  CHECK(deviation["blocks.1.attention.out.weight"] == doctest::Approx(0.01).epsilon(0.03));
  CHECK(deviation["blocks.1.mlp.down.weight"] == doctest::Approx(0.01).epsilon(0.03));
  CHECK(deviation["embedding.tokens.weight"] == doctest::Approx(0.02).epsilon(0.05));
}

TEST_CASE("weights: another seed or another name gives other values") {
  Fixture f(test::tiny_gpt2());
  const std::vector<Parameter*> all = f.model.parameters();
  const auto find = [&](const std::string& name) -> const Parameter& {
    return **std::find_if(all.begin(), all.end(), [&](auto* p) { return p->name() == name; });
  };
  const Parameter& first = find("blocks.0.mlp.up.weight");
  const Parameter& second = find("blocks.1.mlp.up.weight");
  const Doubles values = f.filled(from_scratch(1), first, 0, 100);
  CHECK(f.filled(from_scratch(1), first, 0, 100) == values);
  CHECK(f.filled(from_scratch(2), first, 0, 100) != values);
  CHECK(f.filled(from_scratch(1), second, 0, 100) != values);
}

TEST_CASE("weights: names that wrappers of modules changed are one line, and can be read without") {
  Fixture f(test::tiny_llama());
  const auto renamed = [&](const auto& rename) {
    Tensors out;
    for (const auto& [name, shape] : f.tensors()) out[rename(name)] = shape;
    return out;
  };
  const size_t count = f.tensors().size();
  const std::string path = f.folder.path().string();
  CHECK(f.error(renamed([](const std::string& name) { return "module._orig_mod." + name; })) ==
        fmt::format("{}: {} of {} names of tensors have module. and _orig_mod. in them, of "
                    "DistributedDataParallel and torch.compile: fsdp convert --strip-prefix "
                    "module. --strip-prefix _orig_mod. {} NEW writes a folder without",
                    path, count, count, path));
  const auto opened = [&](const std::vector<std::string>& stripped) {
    const auto folder = SafetensorsFolder::open(path);
    return names_in_folder(folder, f.model.config(), f.model.parameters(), {}, stripped);
  };
  CHECK(opened({"module.", "_orig_mod."}).at("final_norm.weight") ==
        "module._orig_mod.model.norm.weight");
  const Tensors inside = renamed([](std::string name) {
    const size_t at = name.find("self_attn");
    return at == name.npos ? name : name.insert(at, "_fsdp_wrapped_module.");
  });
  CHECK(contains(f.error(inside), "have _fsdp_wrapped_module. in them, of FSDP: fsdp convert"));
  CHECK(opened({"_fsdp_wrapped_module."}).size() == count);
  CHECK(contains(f.error(renamed([](const std::string& name) { return "net." + name; })),
                 "have net. in them, of another module around the model: fsdp convert"));
  const std::string adapter =
      f.error(renamed([](const std::string& name) { return "base_model.model." + name; }));
  CHECK(contains(adapter, "are those of an adapter of PEFT, not of a model"));
  CHECK(!contains(adapter, "\n"));
  Tensors incomplete = f.tensors();
  incomplete.erase("lm_head.weight");
  incomplete.erase("model.norm.weight");  // all others begin with model.
  CHECK(contains(f.error(incomplete), "\n  missing: model.norm.weight (13)"));
  // One name with a part of a wrapper that is none: stripped it would not help.
  const auto one_renamed = [&](const std::string& other) {
    return renamed([&](const std::string& n) { return n == "model.norm.weight" ? other : n; });
  };
  for (const char* other : {"junk.module.x", "base_model.model.x"}) {
    const std::string said = f.error(one_renamed(other));
    CHECK(
        contains(said, "\n  missing: model.norm.weight (13)\n  unexpected: " + std::string(other)));
  }
  CHECK(contains(f.error(one_renamed("module.model.norm.weight")),
                 fmt::format("{}: 1 of {} names of tensors have module. in them", path, count)));
  Tensors wrapped = renamed([](const std::string& name) { return "module." + name; });
  wrapped.erase("module.model.norm.weight");
  CHECK(contains(f.error(wrapped), "--strip-prefix module. " + path +
                                       " NEW writes a folder without\n  missing even then: "
                                       "model.norm.weight (13)"));
  Tensors twice = renamed([](const std::string& name) { return "module." + name; });
  twice["model.norm.weight"] = Shape{13};
  f.error(twice);
  CHECK(test::error_of([&] { opened({"module."}); }) ==
        path + ": model.norm.weight and module.model.norm.weight become one name without module.");
}

TEST_CASE("weights: of many tensors that do not fit ten are named") {
  Fixture f(test::tiny_llama());
  Tensors other;
  for (int i = 0; i < 13; ++i) other[fmt::format("other.{}", i)] = Shape{1};
  const std::string error = f.error(other);
  CHECK(contains(error, fmt::format("\n  missing: {} more\n", f.tensors().size() - 10)));
  CHECK(contains(error, "\n  unexpected: 3 more"));
  CHECK(std::count(error.begin(), error.end(), '\n') == 22);
}

}  // namespace
}  // namespace fsdp::models
