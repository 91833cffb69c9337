// The sections of the list of options. Read next: data_fields.cpp, train_fields.cpp,
// sharding_fields.cpp.
#include "tools/config/config_fields.h"

namespace fsdp::config {

void visit(Visitor& v, TrainConfig& c) {
  constexpr OnResume kFree = OnResume::kFree;
  v.section("model", "what is trained", c.model, c);
  v.section("lora", "low-rank terms that are trained instead of the model (LoRA)", c.lora, c);
  v.section("data", "what it is trained on", c.data, c);
  v.section("train", "how", c.train, c);
  v.section("checkpoint", "what a run can go on from", c.checkpoint, c, kFree);
  v.section("fsdp", "how it is sharded", c.fsdp, c, kFree);
  v.section("runtime", "where it runs", c.runtime, c, kFree);
  v.section("launch", "how its ranks reach each other", c.runtime.launch, c, kFree);
  v.section("sample", "a continuation at the end", c.sample, c, kFree);
}

}  // namespace fsdp::config
