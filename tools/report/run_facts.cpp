// Facts as JSON.
#include "tools/report/run_facts.h"

namespace fsdp::tools {

Json to_json(const RunFacts& f) {
  return {{"model", f.model},
          {"dataset", f.dataset},
          {"run_name", f.run_name},
          {"sharding_strategy", f.sharding_strategy},
          {"max_steps", f.max_steps},
          {"seq_len", f.seq_len},
          {"bsz", f.bsz},
          {"grad_accum", f.grad_accum},
          {"lr", f.lr},
          {"seed", f.seed},
          {"subset_size", f.subset_size ? Json(*f.subset_size) : Json()},
          {"fsdp", f.fsdp},
          {"bf16", f.bf16},
          {"use_lora", f.use_lora},
          {"gradient_checkpointing", f.gradient_checkpointing},
          {"cpu", f.cpu},
          {"gpu", f.gpu.empty() ? Json() : Json(f.gpu)},
          {"gpu0", f.gpu.empty() ? Json() : Json(f.gpu)},  // as the scripts of several ranks say it
          {"torch", nullptr}};                             // there is none
}

}  // namespace fsdp::tools
