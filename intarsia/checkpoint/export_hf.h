// Model directories in Hugging Face's format, and gradients to compare with other frameworks.
#pragma once

#include <cstdint>
#include <string>

#include "intarsia/base/dtype.h"
#include "intarsia/formats/hf_config.h"
#include "intarsia/optim/optimizer.h"
#include "intarsia/plan/lora.h"
#include "intarsia/shard/engine.h"

namespace intarsia::checkpoint {

struct ExportOptions {
  DType dtype = DType::kF32;  // fp32, bf16 or fp16 (rounded to nearest)
  // Folder that tokenizer.json, tokenizer_config.json, special_tokens_map.json, generation_config.json and
  // chat_template.jinja are copied from where they are there; empty: none.
  std::string copy_from = {};
  const optim::Optimizer* average = nullptr;     // write its moving average of the weights instead of the weights
  std::int64_t max_shard_bytes = 5'000'000'000;  // of weights in one file; above it several and an index are written
};

// Writes `directory` as transformers loads it: config.json, model.safetensors (or shards with their index), and the
// copied files. Names and shapes are the model's; a tied tensor is stored once. An existing export is replaced when the
// new one is complete; foreign files that stood in it are moved to DIRECTORY.old-NONCE, never deleted.
// Collective over the engine's axis; rank 0 writes. Memory: a flat buffer in fp32 and one parameter in `dtype`.
// Errors: on every rank, with rank 0's reason: kIo; kUnsupported for other dtypes; kUsage when `directory` is
// `copy_from`.
void export_hf(shard::Engine& engine, const formats::HfConfig& config, const std::string& directory,
               const ExportOptions& options);

// Writes the adapters of a LoRA run as the directory that PEFT loads: adapter_config.json, adapter_model.safetensors,
// and the copied files; `base` becomes base_model_name_or_path. The rest as export_hf; max_shard_bytes is not looked
// at. Memory: a flat buffer of adapters in fp32.
void export_adapter(shard::Engine& engine, const plan::LoraPlan& lora, const std::string& base,
                    const std::string& directory, const ExportOptions& options);

// Writes every trainable parameter's gradient times `factor`, in fp32 with the model's names and full shapes, to the
// safetensors file `path`. Call between Engine::finish_window() and the update, with loss_divisor / tokens as factor:
// then it is the averaged gradient before clipping.
// Collective over the engine's axis; rank 0 writes. Memory: two flat buffers in fp32. Errors: kIo on every rank.
void dump_gradients(shard::Engine& engine, double factor, const std::string& path);

}  // namespace intarsia::checkpoint
