// The file of an experiment (README.md, "A recipe"): which configurations are its base, and what
// the runs differ in. Here it is read, not yet understood: keys of the configuration are texts with
// the place where they stand. Read next: sweep_cases.h.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/jobs/variations.h"

namespace fsdp::tools {

struct GivenKey {
  std::string value;  // as --set takes it
  std::string place;  // "recipe.yaml:12", "--set train.lr=1e-4"
};
using GivenKeys = std::map<std::string, GivenKey>;  // by dotted key; "ranks" is one

// The model as the guide has it, whose memory alone is predicted.
struct FullSize {
  GivenKeys set = {};
  int ranks = 0;    // 0: as the case has them
  std::string gpu;  // "": the CPU computes
  std::string place = {};
};

struct NamedCase {
  std::string name, place;
  GivenKeys keys = {};
  std::optional<FullSize> full_size = {};
};

struct GridKey {
  VariedKey varied;
  std::string place;
};

struct Recipe {
  std::filesystem::path file;
  std::string question = {};
  bool is_configuration = false;          // of train itself: there is nothing but `typed`
  std::vector<std::string> include = {};  // beside the file
  GivenKeys set = {};
  std::vector<GridKey> grid = {};
  std::vector<NamedCase> cases = {};  // none where there is a grid
  int ranks = 1;
  int repeat = 1;
  std::vector<std::string> columns = {};  // none: the usual ones
  std::string baseline = {};              // "": the first case
  std::optional<FullSize> full_size = {};
  std::vector<std::string> evaluate = {};  // none: nothing is evaluated
  GivenKeys typed = {};                    // on the command line; they count most

  std::string name() const { return file.stem().string(); }
};

// Errors name the file and the line. A configuration of train is a recipe, too, of
// one case.
Recipe parse_recipe(const std::string& yaml, const std::filesystem::path& file);
// `typed`: "a.b=1,2,4" adds a key to the grid, or takes the place of its values; with one value it
// counts more than all that the recipe says.
Recipe read_recipe(const std::filesystem::path& file, const std::vector<std::string>& typed);

// "a,[b, c],'d,e'" has three parts: commas in brackets or in quotation marks separate nothing.
std::vector<std::string> split_at_commas(const std::string& text);

}  // namespace fsdp::tools
