#include <filesystem>
#include <sstream>
#include <system_error>

#include "intarsia/base/error.h"
#include "intarsia/formats/bpe_train.h"
#include "intarsia/formats/json.h"
#include "intarsia/formats/tokenizer_text.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

std::string quoted_token(const TrainedBpe& bpe, std::int32_t id) {
  return json_quote(to_byte_alphabet(bpe.tokens[static_cast<std::size_t>(id)]));
}

std::string pre_tokenizer_json(WordPattern pattern) {
  if (pattern == WordPattern::kGpt2) {
    return R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  }
  return concat(R"({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": )",
                json_quote(source(pattern)), R"(}, "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})");
}

std::string tokenizer_json(const TrainedBpe& bpe, const BpeTrainOptions& options) {
  std::ostringstream out;
  out << "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  std::size_t id = bpe.tokens.size();
  for (const std::string& special : options.special_tokens) {
    out << (id == bpe.tokens.size() ? "\n" : ",\n") << "    {\"id\": " << id << ", \"content\": " << json_quote(special)
        << R"(, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})";
    ++id;
  }
  out << "],\n  \"normalizer\": null,\n  \"pre_tokenizer\": " << pre_tokenizer_json(options.pattern)
      << ",\n  \"post_processor\": null,\n  \"decoder\": "
      << R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},)"
      << "\n  \"model\": {\n    \"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
      << R"("continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, )"
      << "\"byte_fallback\": false, \"ignore_merges\": false,\n    \"vocab\": {";
  for (std::size_t i = 0; i < bpe.tokens.size(); ++i) {
    out << (i == 0 ? "\n" : ",\n") << "      " << quoted_token(bpe, static_cast<std::int32_t>(i)) << ": " << i;
  }
  out << "},\n    \"merges\": [";
  for (std::size_t i = 0; i < bpe.merges.size(); ++i) {
    out << (i == 0 ? "\n" : ",\n") << "      [" << quoted_token(bpe, bpe.merges[i].left) << ", "
        << quoted_token(bpe, bpe.merges[i].right) << "]";
  }
  out << "]\n  }\n}\n";
  return out.str();
}

}  // namespace

void write_tokenizer(const std::string& directory, const TrainedBpe& bpe, const BpeTrainOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) io::fail_io("create the folder", directory, error.value());
  const std::filesystem::path folder(directory);
  io::write_file_atomic((folder / "tokenizer.json").string(), tokenizer_json(bpe, options));
  std::string config = "{\n";
  if (!options.special_tokens.empty()) {
    const std::string end = json_quote(options.special_tokens.front());
    config += concat("  \"bos_token\": ", end, ",\n  \"eos_token\": ", end, ",\n");
  }
  config += "  \"clean_up_tokenization_spaces\": false,\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n";
  io::write_file_atomic((folder / "tokenizer_config.json").string(), config);
}

}  // namespace intarsia::formats
