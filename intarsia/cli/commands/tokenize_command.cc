#include "intarsia/cli/commands/tokenize_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/cli/commands/document_pass.h"
#include "intarsia/cli/commands/run_app.h"
#include "intarsia/formats/json.h"
#include "intarsia/formats/token_file.h"
#include "intarsia/formats/tokenizer_text.h"

namespace intarsia::cli {
namespace {

struct Arguments {
  std::string tokenizer, out;
  bool json = false, plain = false, blank_lines = false, chat = false, show = false;
  std::string train_on = "assistant", bad_lines = "error";
  int threads = 0;
  std::vector<std::string> files;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.description(
      "Turns text into the token ids that a model reads.\n"
      "FILE is plain text (one document a file) or JSONL (.jsonl, .ndjson, .json: one object a line, with \"text\",\n"
      "with \"prompt\" and \"completion\", or with \"messages\" for the tokenizer's chat template), perhaps packed\n"
      "(.gz, .zst); globs in quotes are expanded. After each document stands the tokenizer's end-of-text token, so "
      "documents that\n"
      "are packed one after another stay apart. Without --out and --json the tokens are only counted.");
  app.add_option("--tokenizer", arguments.tokenizer, "folder with tokenizer.json (a Hugging Face model's), or the file")
      ->required()
      ->type_name("DIR");
  CLI::Option* out = app.add_option("--out", arguments.out,
                                    "write the ids to this file, for train --data; OUT.json beside it describes it")
                         ->type_name("T.bin");
  app.add_flag("--json", arguments.json, "print one line a document: {\"source\": ..., \"ids\": [...]}")->excludes(out);
  app.add_flag("--plain", arguments.plain,
               "the ids of the text alone: no begin token, no end-of-text token after a document");
  app.add_flag("--chat", arguments.chat, "every document must be a conversation (\"messages\")")->excludes("--plain");
  app.add_flag("--show", arguments.show, "print each document's tokens as text, marked [+] where the loss counts them")
      ->excludes(out)
      ->excludes("--json");
  app.add_option("--train-on", arguments.train_on, "of chats and completions: assistant or all [assistant]")
      ->check(CLI::IsMember({"assistant", "all"}));
  app.add_option("--bad-lines", arguments.bad_lines,
                 "JSONL lines that are malformed or that the chat template refuses: error or skip [error]")
      ->check(CLI::IsMember({"error", "skip"}));
  app.add_flag("--blank-lines", arguments.blank_lines, "plain text: a blank line ends a document");
  app.add_option("--threads", arguments.threads, "worker threads; 0: one a core")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  app.add_option("FILE", arguments.files, "text or JSONL files, or globs")->required()->type_name("");
}

void print_json(const EncodedDocument& document) {
  std::string line = concat("{\"source\": ", formats::json_quote(document.document.origin), ", \"ids\": [");
  const auto& [ids, marks] = document.tokens;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) line += ", ";
    line += std::to_string(ids[i]);
  }
  if (!marks.empty()) {
    line += "], \"trained\": [";
    for (std::size_t i = 0; i < marks.size(); ++i) line += concat(i > 0 ? ", " : "", marks[i] ? 1 : 0);
  }
  line += "]}\n";
  std::cout << line;
  INTARSIA_CHECK(kIo, std::cout.good(), "cannot write to standard output");
}

// One line a token: whether the loss counts it, its id, its text.
void print_tokens(const EncodedDocument& document, const formats::Tokenizer& tokenizer) {
  std::string out = document.document.origin + "\n";
  const auto& [ids, marks] = document.tokens;
  std::size_t counted = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool is_counted = marks.empty() || marks[i];
    counted += is_counted ? 1 : 0;
    const std::string id = std::to_string(ids[i]);
    out += concat(is_counted ? "  [+] " : "      ", std::string(id.size() < 7 ? 7 - id.size() : 0, ' '), id, "  ",
                  formats::json_quote(formats::replace_invalid_utf8(tokenizer.token_bytes(ids[i]))), "\n");
  }
  out += concat("  ", counted, " of ", ids.size(), " tokens are counted by the loss\n");
  std::cout << out;
  INTARSIA_CHECK(kIo, std::cout.good(), "cannot write to standard output");
}

int run(const Arguments& arguments) {
  const formats::Tokenizer tokenizer = formats::Tokenizer::load(arguments.tokenizer);
  namespace fs = std::filesystem;
  const std::string folder = fs::is_directory(arguments.tokenizer)
                                 ? arguments.tokenizer
                                 : fs::path(arguments.tokenizer).parent_path().string();
  const std::optional<formats::ChatFormat> chat = formats::ChatFormat::find(folder);
  formats::DocumentReader reader(
      formats::expand_paths(arguments.files),
      {.split = arguments.blank_lines ? formats::TextSplit::kBlankLines : formats::TextSplit::kFile,
       .chat = chat ? &*chat : nullptr,
       .train_on = arguments.train_on == "all" ? formats::TrainOn::kAll : formats::TrainOn::kAssistant,
       .bad_lines = arguments.bad_lines == "skip" ? formats::BadLines::kSkip : formats::BadLines::kError});
  std::optional<formats::TokenFileWriter> writer;
  if (!arguments.out.empty()) {
    INTARSIA_CHECK(kUsage, arguments.out.ends_with(".bin"), "--out ", printable(arguments.out),
                   ": the name of a token file must end in .bin, by which train knows it");
    writer.emplace(arguments.out, formats::TokenFileInfo{.dtype = formats::token_dtype(tokenizer.vocab_size()),
                                                         .num_tokens = 0,
                                                         .vocab_size = tokenizer.vocab_size(),
                                                         .tokenizer = tokenizer.name(),
                                                         .end_of_text = tokenizer.end_of_text()});
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = arguments.threads > 0 ? arguments.threads : cores;
  std::int64_t num_tokens = 0, num_trained = 0, text_bytes = 0;
  ByteProgress progress("tokenizing", reader.bytes_total());
  encode_documents(reader, tokenizer, arguments.plain, threads, progress, [&](const EncodedDocument& document) {
    const auto& [ids, marks] = document.tokens;
    INTARSIA_CHECK(kData, !arguments.chat || document.document.kind == formats::DocumentKind::kChat,
                   document.document.origin, ": --chat, but this is no conversation (no \"messages\")");
    num_tokens += static_cast<std::int64_t>(ids.size());
    num_trained += marks.empty() ? static_cast<std::int64_t>(ids.size()) : std::count(marks.begin(), marks.end(), true);
    text_bytes += static_cast<std::int64_t>(document.document.text.size());
    if (writer) writer->append_document(ids, marks);
    if (arguments.json) print_json(document);
    if (arguments.show) print_tokens(document, tokenizer);
  });
  if (writer) {
    writer->set_counts(reader.num_documents(), reader.num_bad_lines());
    writer->commit();
  }
  std::cout.flush();
  INTARSIA_CHECK(kIo, std::cout.good(), "cannot write to standard output");

  progress.clear();
  const double bytes_per_token = num_tokens > 0 ? static_cast<double>(text_bytes) / static_cast<double>(num_tokens) : 0;
  std::ostringstream ratio;
  ratio.precision(3);
  ratio << bytes_per_token;
  log_note(concat(reader.num_documents(), " documents, ", num_tokens, " tokens",
                  num_trained < num_tokens ? concat(" (", num_trained, " trained on)") : "", " from ",
                  format_bytes(text_bytes), " (", ratio.str(), " bytes a token), ",
                  byte_rate(text_bytes, progress.seconds()),
                  reader.num_skipped() > 0 ? concat("; ", reader.num_skipped(), " empty documents skipped") : "",
                  reader.num_bad_lines() > 0 ? concat("; ", reader.num_bad_lines(), " bad lines skipped") : ""));
  if (writer) {
    log_note(concat("wrote ", arguments.out, " (", writer->info().dtype == DType::kU32 ? "u32" : "u16", ") and ",
                    formats::token_info_path(arguments.out)));
  }
  return 0;
}

}  // namespace

int tokenize_command(int argc, char** argv) {
  CLI::App app("", "intarsia tokenize");
  Arguments arguments;
  declare(app, arguments);
  return run_app(app, argc, argv, "intarsia tokenize", "stopped; nothing was written", [&] { return run(arguments); });
}

}  // namespace intarsia::cli
