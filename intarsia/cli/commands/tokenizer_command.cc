#include "intarsia/cli/commands/tokenizer_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "intarsia/base/error.h"
#include "intarsia/base/log.h"
#include "intarsia/base/text.h"
#include "intarsia/cli/commands/byte_progress.h"
#include "intarsia/cli/commands/run_app.h"
#include "intarsia/cli/commands/stop_signal.h"
#include "intarsia/formats/bpe_train.h"
#include "intarsia/formats/documents.h"

namespace intarsia::cli {
namespace {

struct Arguments {
  std::int64_t vocab = 0;
  std::string out, pattern = "llama3";
  std::vector<std::string> special;
  std::vector<std::string> files;
};

void declare(CLI::App& train, Arguments& arguments) {
  train.description(
      "Learns a byte-level BPE tokenizer from text and writes it as Hugging Face's tokenizer.json.\n"
      "The vocabulary has the 256 bytes, so that every text can be written; the frequent pieces of words that the\n"
      "text teaches; and <|endoftext|>, which stands after each document. FILE is plain text or JSONL with \"text\".");
  train.add_option("--vocab", arguments.vocab, "tokens of the vocabulary, 257 and more; 4096 suits a few MB of text")
      ->required()
      ->type_name("N");
  train.add_option("--out", arguments.out, "folder for tokenizer.json and tokenizer_config.json")
      ->required()
      ->type_name("DIR");
  train.add_option("--pattern", arguments.pattern, "how text is cut into words: llama3 (default), gpt2 or qwen2")
      ->check(CLI::IsMember({"llama3", "gpt2", "qwen2"}))
      ->type_name("NAME");
  train.add_option("--special", arguments.special, "a further special token, such as a chat's markers; repeatable")
      ->expected(1)
      ->take_all()
      ->type_name("TOKEN");
  train.add_option("FILE", arguments.files, "text or JSONL files, or globs")->required()->type_name("");
}

formats::WordPattern pattern_of(const std::string& text) {
  for (const formats::WordPattern pattern : {formats::WordPattern::kGpt2, formats::WordPattern::kQwen2}) {
    if (text == formats::name(pattern)) return pattern;
  }
  return formats::WordPattern::kLlama3;
}

int run(const Arguments& arguments) {
  formats::BpeTrainOptions options;
  options.vocab_size = arguments.vocab;
  options.pattern = pattern_of(arguments.pattern);
  options.special_tokens.insert(options.special_tokens.end(), arguments.special.begin(), arguments.special.end());
  formats::BpeTrainer trainer(options);

  formats::DocumentReader reader(formats::expand_paths(arguments.files));
  ByteProgress progress("counting words", reader.bytes_total());
  for (formats::Document document; reader.next(document);) {
    StopSignal::check();
    trainer.add(document.text);
    progress.update(reader.bytes_done());
  }
  progress.clear();
  log_note(concat("counted the words of ", reader.num_documents(), " documents, ",
                  byte_rate(reader.bytes_done(), progress.seconds())));

  const formats::TrainedBpe bpe = trainer.train([](std::int64_t, std::int64_t) { StopSignal::check(); });
  formats::write_tokenizer(arguments.out, bpe, options);

  const auto size = static_cast<std::int64_t>(bpe.tokens.size() + options.special_tokens.size());
  std::ostringstream ratio;
  ratio.precision(3);
  ratio << static_cast<double>(bpe.text_bytes) / static_cast<double>(bpe.text_tokens);
  log_note(concat(bpe.merges.size(), " merges from ", bpe.num_words, " different words; ", size, " tokens; ",
                  ratio.str(), " bytes a token on this text; ", static_cast<std::int64_t>(progress.seconds() + 0.5),
                  " s"));
  if (size < options.vocab_size) {
    log_warning(concat("the text holds only ", size, " of the ", options.vocab_size,
                       " tokens asked for: no other pair of pieces occurs twice; give more text or a smaller --vocab"));
  }
  log_note(concat("wrote ", arguments.out, "/tokenizer.json and tokenizer_config.json"));
  return 0;
}

}  // namespace

int tokenizer_command(int argc, char** argv) {
  CLI::App app("Makes tokenizers.", "intarsia tokenizer");
  app.require_subcommand(1);
  CLI::App* train = app.add_subcommand("train", "learn a vocabulary from text");
  Arguments arguments;
  declare(*train, arguments);
  return run_app(app, argc, argv, "intarsia tokenizer train", "stopped; nothing was written",
                 [&] { return run(arguments); });
}

}  // namespace intarsia::cli
