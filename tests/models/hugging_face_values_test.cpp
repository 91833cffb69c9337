// Settings of Hugging Face's models that no folder of tests/fixtures has, against the values that
// transformers 4.57.1 computes on PyTorch 2.13, its inner casts to float32 made casts to float64,
// for the same weights: element i of the t-th tensor, by name, is 0.5 sin(1 + 0.7 i + 1.3 t).
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "models/input_rules.h"
#include "models/names.h"
#include "models/weights.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp::models {
namespace {

using Doubles = std::vector<double>;

// One pass over the tokens 1, 2, 4, 2, 0, 3, which are the labels, too.
struct Pass {
  explicit Pass(const Json& json)
      : config(parse_config(json.dump(), "config.json")),
        model(config, backend, DType::kF64, 6),
        tape(backend) {
    parameters = model.parameters();
    std::sort(parameters.begin(), parameters.end(), [&](const auto* a, const auto* b) {
      return hugging_face_name(config, a->name()) < hugging_face_name(config, b->name());
    });
    for (size_t t = 0; t < parameters.size(); ++t) {
      Doubles values(static_cast<size_t>(parameters[t]->numel()));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = 0.5 * std::sin(1 + 0.7 * static_cast<double>(i) + 1.3 * static_cast<double>(t));
      }
      parameters[t]->set_value(Tensor::from_host(backend, parameters[t]->shape(), values));
      parameters[t]->set_tape(&tape);
    }
    const std::vector<int32_t> ids = {1, 2, 4, 2, 0, 3};
    const Tensor labels = Tensor::from_host(backend, Shape{6}, shifted_labels(ids, 1, 6));
    const Tensor sum =
        model.loss(Tensor::from_host(backend, Shape{1, 6}, ids), labels, {}, 1.0 / 5);
    loss = sum.item() / 5;
    tape.backward(sum);
  }
  Doubles gradient_of_row(size_t row) {
    for (Parameter* p : parameters) {
      if (p->name() != "embedding.tokens.weight") continue;
      const Doubles all = p->gradient().to_doubles();
      return Doubles(all.begin() + static_cast<std::ptrdiff_t>(row) * 4,
                     all.begin() + static_cast<std::ptrdiff_t>(row + 1) * 4);
    }
    return {};
  }

  cpu::CpuBackend backend;
  ModelConfig config;
  CausalLM model;
  Tape tape;
  std::vector<Parameter*> parameters;  // by Hugging Face name
  double loss = 0;
};

void check_close(const Doubles& got, const Doubles& expected, double tolerance) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(got[i] - expected[i]) <= tolerance);
  }
}

Json llama(const char* family, bool tied, const Json& padding) {
  return {{"model_type", family},        {"vocab_size", 5},          {"hidden_size", 4},
          {"num_hidden_layers", 1},      {"num_attention_heads", 2}, {"num_key_value_heads", 1},
          {"intermediate_size", 3},      {"rms_norm_eps", 1e-6},     {"max_position_embeddings", 8},
          {"tie_word_embeddings", tied}, {"pad_token_id", padding}};
}

TEST_CASE("hugging face: the padding token's row learns from a tied head, not from lookups") {
  const Doubles zeros(4);
  struct Case {
    const char* family;
    bool tied;
    double loss;
    Doubles row_2, row_2_padded, row_4, row_4_padded;
  };
  for (const Case& c : std::vector<Case>{
           {"llama",
            false,
            1.79057308282523,
            {0.00952416092989725, 0.0452989341365771, 0.138720808556405, 0.102638452326617},
            zeros,
            {-0.0608233894895123, -0.00975758314893818, 0.0768870152744351, 0.0914566007375335},
            zeros},
           {"mistral",
            true,
            1.68392616413724,
            {0.136201457620705, 0.105443528091909, 0.0112726601879797, 0.0639486477966861},
            {0.145988870161816, 0.148334361794816, 0.0215285828613883, -0.00123611286724078},
            {-0.069280770307898, -0.129623646478162, -0.0509998418130602, 0.0489333074212426},
            {-0.0345045437822651, -0.0505008669504128, -0.020542425815161, 0.0133983010684663}},
           {"qwen2",
            true,
            1.54542157907841,
            {-0.0841922054134944, 0.0327836180384087, 0.0180568654635165, -0.0908033049594952},
            {-0.131598360028196, -0.0269450868679434, 0.0518917435579722, -0.0425993858228713},
            {0.0217813463824346, 0.0424856237611933, -0.0299726378003972, -0.0237119778716686},
            {0.0216277611762403, 0.00528900549182052, -0.0153074340936315, -0.0122855305994862}}}) {
    CAPTURE(c.family);
    constexpr double kTolerance = 1e-14;
    Pass none(llama(c.family, c.tied, nullptr)), two(llama(c.family, c.tied, 2)),
        last(llama(c.family, c.tied, -1));  // a negative one counts from the end
    for (Pass* pass : {&none, &two, &last}) CHECK(std::abs(pass->loss - c.loss) < kTolerance * 2);
    check_close(none.gradient_of_row(2), c.row_2, kTolerance);
    check_close(none.gradient_of_row(4), c.row_4, kTolerance);
    check_close(two.gradient_of_row(2), c.row_2_padded, kTolerance);
    check_close(two.gradient_of_row(4), c.row_4, kTolerance);
    check_close(last.gradient_of_row(2), c.row_2, kTolerance);
    check_close(last.gradient_of_row(4), c.row_4_padded, kTolerance);
  }
}

// Its generic weight initialisation, then tying: a tied head's row is zero as well, an untied one's
// is not.
TEST_CASE("hugging face: the padding token's row begins as zeros") {
  for (const bool tied : {false, true}) {
    Pass pass(llama("llama", tied, 3));
    const FillFunction fill = from_scratch(1, pass.config.padding_row);
    for (const Parameter* p : pass.parameters) {
      if (p->name() != "embedding.tokens.weight" && p->name() != "head.weight") continue;
      Tensor values = Tensor::empty(pass.backend, Shape{p->numel()}, DType::kF64);
      fill(*p, 0, values);
      const Doubles all = values.to_doubles();
      for (size_t i = 0; i < all.size(); ++i) {
        const bool padding = i / 4 == 3 && p->name() == "embedding.tokens.weight";
        CHECK((all[i] == 0) == padding);
      }
    }
  }
}

TEST_CASE("hugging face: where pad_token_id may lie, and whose it is") {
  const auto row = [](const Json& json) { return parse_config(json.dump(), "c.json").padding_row; };
  CHECK(row(llama("llama", true, nullptr)) == -1);
  CHECK(row(llama("qwen2", true, 0)) == 0);
  CHECK(row(llama("mistral", true, -5)) == 0);
  for (const int64_t id : {5, -6}) {  // PyTorch's Embedding refuses them, too
    CHECK(test::error_of([&] { row(llama("llama", false, id)); }) ==
          fmt::format("c.json: pad_token_id: expected within [-5, 5), the vocabulary, got {}", id));
  }
  // Their tables have no padding_idx in transformers.
  CHECK(row({{"model_type", "gpt2"},
             {"vocab_size", 5},
             {"n_embd", 4},
             {"n_layer", 1},
             {"n_head", 2},
             {"n_positions", 8},
             {"pad_token_id", 2}}) == -1);
  CHECK(row({{"model_type", "bloom"},
             {"vocab_size", 5},
             {"hidden_size", 4},
             {"n_layer", 1},
             {"n_head", 2},
             {"pad_token_id", 2}}) == -1);
  const ModelConfig config = parse_config(llama("llama", true, 4).dump(), "c.json");
  CHECK(row(Json::parse(config_json(config, "float32"))) == 4);
}

TEST_CASE("hugging face: BLOOM whose residual stream goes on from the norms") {
  struct Case {
    bool normed;
    double loss;
    Doubles norms;  // of the gradients, by name
  };
  for (const Case& c :
       std::vector<Case>{{false,
                          1.89104201623122,
                          {0.04060135046215, 0.0248926826001,  0.1147745016087,  0.2100832931106,
                           0.1115208252662,  0.1251329292135,  0.035674991784,   0.03967109595196,
                           0.1124261572059,  0.2252649217719,  0.07092813890673, 0.07941959616531,
                           0.04307540589379, 0.02755064754743, 0.1022358645631,  0.1652239012985,
                           0.09650902417124, 0.129001393637,   0.04835757786073, 0.05659926394183,
                           0.1110820265092,  0.2042616517413,  0.0736782225999,  0.07453186581936,
                           0.6444363159822,  0.6563347032422,  0.4848382918213,  0.1108844878537,
                           0.08012244684716}},
                         {true,
                          1.76886534736544,
                          {0.01794147913561, 0.008467699304828, 0.03214126113827, 0.06874994659056,
                           0.02814799484127, 0.04014527134265,  0.03447778485914, 0.03176841766699,
                           0.01947630487689, 0.03766243828196,  0.01738814714462, 0.01984341250048,
                           0.1294587827138,  0.1120080139824,   0.1276781777856,  0.1393414478796,
                           0.1369304618064,  0.1653990156029,   0.1666508393329,  0.2373543279658,
                           0.1148981162717,  0.2248556085928,   0.1265098208561,  0.148835455088,
                           0.5382754700699,  0.4999204311386,   0.4331675971524,  0.01846841899053,
                           0.01114479011997}}}) {
    CAPTURE(c.normed);
    Pass pass({{"model_type", "bloom"},
               {"vocab_size", 5},
               {"hidden_size", 6},
               {"n_layer", 2},
               {"n_head", 3},
               {"apply_residual_connection_post_layernorm", c.normed}});
    constexpr double kTolerance = 1e-8;  // its GELU has a rounded constant
    CHECK(std::abs(pass.loss - c.loss) < kTolerance);
    Doubles norms;
    for (Parameter* p : pass.parameters) {
      double sum = 0;
      for (const double g : p->gradient().to_doubles()) sum += g * g;
      norms.push_back(std::sqrt(sum));
    }
    check_close(norms, c.norms, kTolerance);
    CHECK(parse_config(config_json(pass.config, "float32"), "c.json").normed_residual == c.normed);
  }
}

}  // namespace
}  // namespace fsdp::models
