// Models once more, in plain loops over doubles, written from papers and documentation: they share
// nothing with the project but the names of weights. For families of which no reference outputs
// exist. Read next: tests/models/fairseq_gpt3_test.cpp for its use.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace fsdp::test {

using Doubles = std::vector<double>;
using Weights = std::map<std::string, Doubles>;  // by the name that files have

namespace plain {

// Rows of `in` numbers -> rows of b.size() numbers: y = x W^T + b, W (out, in).
Doubles linear(const Doubles& x, const Doubles& weight, const Doubles& bias);
Doubles layer_norm(const Doubles& x, const Doubles& weight, const Doubles& bias, double epsilon);
// softmax(q k^T / sqrt(width of a head)) v over the positions up to each one; rows are positions.
// `hidden_keys`: true where no position sees the key; empty: nowhere.
Doubles causal_attention(const Doubles& q, const Doubles& k, const Doubles& v, int heads,
                         size_t hidden, const std::vector<bool>& hidden_keys = {});
Doubles add(Doubles x, const Doubles& y);
Doubles apply(Doubles x, double (*f)(double));
Doubles rows_of(const Doubles& table, const std::vector<int32_t>& rows, size_t width);

// Sum of -log softmax(logits[t])[labels[t]] over labels that are not negative.
double cross_entropy(const Doubles& logits, const std::vector<int32_t>& labels);

}  // namespace plain

// How a file of weights looks: names and extents.
using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

struct PlainBatch {
  std::vector<int32_t> tokens;  // rows * length
  int64_t rows = 0, length = 0;
};

// One row of tokens -> (length, vocabulary).
using PlainModel =
    std::function<Doubles(const Weights& weights, const std::vector<int32_t>& tokens)>;

Weights random_weights(const Shapes& shapes);  // those of check_against_plain

// Writes a folder with this config.json and random weights, reads it as any model is read, and
// CHECKs logits, loss and every gradient (finite differences of the plain model) in float64.
void check_against_plain(const std::string& config_json, const Shapes& shapes,
                         const PlainBatch& batch, const PlainModel& plain);

}  // namespace fsdp::test
