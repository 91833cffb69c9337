// The programs whose configurations are read, one file each. Each function returns our YAML.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tools/guides/adopt/rules.h"

namespace fsdp::adopt {

std::string adopt_accelerate(const std::filesystem::path& file, const AdoptOptions& options);
// TrainingArguments as JSON or YAML, also inside the sections of a template's file
// (trainer.train, trainer.dist, ...).
std::string adopt_hugging_face(const std::filesystem::path& file, const AdoptOptions& options);
std::string adopt_deepspeed(const std::filesystem::path& file, const AdoptOptions& options);
std::string adopt_axolotl(const std::filesystem::path& file, const AdoptOptions& options);
std::string adopt_llama_factory(const std::filesystem::path& file, const AdoptOptions& options);
// The words of a command.
std::string adopt_fairseq(const std::vector<std::string>& arguments, const AdoptOptions& options);
std::string adopt_chess(const std::vector<std::string>& arguments, const AdoptOptions& options);
// The variables of a process by name, other programs' among them.
using Variables = std::map<std::string, std::string>;
std::string adopt_environment(const Variables& variables, const AdoptOptions& options);

// The tables of programs that read YAML or JSON: whose file is it?
const Program& accelerate_program();
const Program& hugging_face_program();
const Program& deepspeed_program();
const Program& axolotl_program();
const Program& llama_factory_program();
std::vector<const Program*> tree_programs();

}  // namespace fsdp::adopt
