// What is in the place of weights, of JSON and of texts, and what is advised.
#include "core/io/file_kind.h"

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

using std::string_view_literals::operator""sv;
using test::contains;

// A zip whose first file has this name.
std::string zip_of(std::string_view name) {
  std::string out = "PK\x03\x04" + std::string(26, '\0') + std::string(name);
  out[26] = static_cast<char>(name.size());
  return out;
}

std::string in_place_of_weights(std::string_view bytes) {
  const std::string error =
      test::error_of([&] { SafetensorsFile::view(bytes, "m d/model.safetensors"); });
  CHECK(error ==
        "m d/model.safetensors: " + other_kind(bytes, "m d/model.safetensors", Wanted::kWeights));
  return error;
}

TEST_CASE("file kind: weights that are something else, with the command that makes safetensors") {
  const std::tuple<std::string, const char*, const char*> kinds[] = {
      {zip_of("archive/data.pkl"), "tensors of torch.save", "torch.load"},
      {"\x80\x02\x8a\nl\xfc\x9c", "a pickle", "torch.load"},
      {"\x80\x05\x95", "a pickle", "weights_only=True"},
      {zip_of("wte.npy"), "arrays of NumPy (.npz)", "numpy.load"},
      {zip_of("other.txt"), "an archive of zip", "unzip 'm d/model.safetensors'"},
      {"GGUF\3", "llama.cpp", "'m d' model.safetensors"},
      {"\x89HDF\r\n\x1a\n", "HDF5", "from_tf=True"},
      {std::string(257, '\0').append("ustar"), "an archive of tar", "tar -xf "},
      {"\x1f\x8b\x08", "gzip",
       "gzip -dc 'm d/model.safetensors' > 'm d/model.unpacked.safetensors' && mv "
       "'m d/model.unpacked.safetensors' 'm d/model.safetensors'"},
      {"\xef\xbb\xbf\n<!DOCTYPE HTML><html>", "a web page (HTML)",
       "hf download ORG/NAME model.safetensors --local-dir 'm d'"},
      {"<?xml version=\"1.0\"?><Error>", "XML", "hf download"},
      {"Entry not found", "a text that begins with: Entry not found", "hf download"},
      {"{\"error\":\"gated\"}", "a text that begins with: {\"error\":\"gated\"}", "hf download"},
      {"", "an empty file", "hf download"},
      {"{\"metadata\": {}, \"weight_map\": {", "an index", "model.safetensors.index.json"},
      {"version https://git-lfs.github.com/spec/v1\n", "Git LFS", "git lfs pull"}};
  for (const auto& [bytes, name, advice] : kinds) {
    const std::string error = in_place_of_weights(bytes);
    CAPTURE(error);
    CHECK(contains(error, name));
    CHECK(contains(error, advice));
  }
  // Words of the commands within the names of files.
  CHECK(other_kind("GGUF", "NAME/FOLDER.gguf", Wanted::kWeights).ends_with(" NAME FOLDER.gguf"));
  CHECK(other_kind("\x80\x02", "OUT/FILE.bin", Wanted::kWeights)
            .ends_with(" OUT/FILE.bin OUT/FILE.converted.bin && mv OUT/FILE.converted.bin "
                       "OUT/FILE.bin"));
  CHECK(is_pickle(zip_of("model/data.pkl")));
  CHECK(is_pickle("\x80\x04"));
  CHECK_FALSE(is_pickle(zip_of("a.npy")));
  CHECK_FALSE(is_pickle("\x80\x09"));
}

// A header of 0x088b1f bytes begins as gzip does, one of 0x0280 as a pickle.
TEST_CASE("file kind: good weights are good whatever their length begins with") {
  for (const size_t size : {size_t{0x088b1f}, size_t{0x0280}, size_t{0x2d35}}) {
    const std::string length(reinterpret_cast<const char*>(&size), 8);
    const std::string bytes = length + "{}" + std::string(size - 2, ' ');
    CHECK(test::error_of([&] { SafetensorsFile::view(bytes, "m"); }) == "");
    const std::string cut = bytes.substr(0, bytes.size() / 2);
    CHECK(other_kind(cut, "m", Wanted::kWeights) == "");
    CHECK_FALSE(is_pickle(cut));
    CHECK(test::error_of([&] { SafetensorsFile::view(cut, "m"); }).starts_with("m: "));
  }
}

TEST_CASE("file kind: JSON that is something else") {
  const auto refusal = [](std::string_view bytes) {
    return test::error_of([&] { parse_json(bytes, "m/config.json"); });
  };
  CHECK(refusal("<!doctype html>") ==
        "m/config.json: expected JSON, got a web page (HTML); fetch the file again: hf download "
        "ORG/NAME config.json --local-dir m (where the model needs a login, after hf auth login)");
  CHECK(refusal("\xff\xfe{\0}\0"sv) ==
        "m/config.json: expected JSON, got UTF-16; convert it: iconv -f UTF-16 -t UTF-8 "
        "m/config.json > m/config.utf8.json && mv m/config.utf8.json m/config.json");
  CHECK(contains(refusal("\x1f\x8b\x08"), "&& mv m/config.unpacked.json m/config.json"));
  CHECK(refusal("PAR1PAR1") == "m/config.json: expected JSON, got a table of Parquet");
  CHECK(contains(refusal("<?xml"), "expected JSON, got XML"));
  for (const std::string_view nothing : {""sv, " \n"sv, "\0\0\0\0\0"sv}) {
    CHECK(refusal(nothing) ==
          "m/config.json:1: malformed JSON: nothing is in it: a download or a copy was not "
          "complete");
  }
  CHECK(contains(refusal("Entry not found"), "m/config.json:1: malformed JSON: "));
}

TEST_CASE("file kind: a text may be anything of UTF-8") {
  for (const std::string_view text :
       {"", "<!doctype html>", "<?xml ?>", "{", "PAR1 a", "GGU", "GGUF is a file of llama.cpp.",
        "%PDF-1.4 begins each\nfile."}) {
    CHECK(other_kind(text, "a.txt", Wanted::kText) == "");
  }
  for (const std::string_view gguf : {"GGUF"sv, "GGUF\3\0\0\0\1"sv, "GGUF\0\0\0\3\1"sv}) {
    CHECK(contains(other_kind(gguf, "a.txt", Wanted::kText), "write it as JSONL or CSV"));
  }
  CHECK(contains(other_kind("%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj", "a.txt", Wanted::kText),
                 "pdftotext "));
  CHECK(is_web_page(" <HTML lang=\"en\">"));
  CHECK_FALSE(is_web_page("<htm"));
  CHECK_FALSE(is_web_page("text <html>"));
}

}  // namespace
}  // namespace fsdp
