// A path or a name as one word of a shell, for the commands that messages give.
#pragma once

#include <string>

namespace fsdp {

// In quotation marks where the shell would read the text in another way.
std::string shell_word(const std::string& text);

}  // namespace fsdp
