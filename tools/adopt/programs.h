// The programs whose configurations are read, one file each. Each function returns our YAML.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/adopt/rules.h"

namespace fsdp::adopt {

using Files = std::vector<std::filesystem::path>;

std::string adopt_accelerate(const std::filesystem::path& file, const AdoptOptions& options);
// TrainingArguments as JSON or YAML, also inside the sections of a template's file
// (trainer.train, trainer.dist, ...).
std::string adopt_hugging_face(const std::filesystem::path& file, const AdoptOptions& options);
std::string adopt_deepspeed(const std::filesystem::path& file, const AdoptOptions& options);
// A file with the command, or the command itself.
std::string adopt_fairseq(const std::vector<std::string>& arguments, const AdoptOptions& options);
std::string adopt_chess(const std::vector<std::string>& arguments, const AdoptOptions& options);
// Scripts that set variables, in the order in which they run, and Python programs that read them.
std::string adopt_environment(const Files& files, const AdoptOptions& options);

// The tables of programs that read YAML or JSON: whose file is it?
const Program& accelerate_program();
const Program& hugging_face_program();
const Program& deepspeed_program();
std::vector<const Program*> tree_programs();

}  // namespace fsdp::adopt
