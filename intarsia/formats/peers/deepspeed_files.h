// The files of a DeepSpeed checkpoint. Internal to formats.
#pragma once

#include <string>
#include <vector>

namespace intarsia::formats {

struct DeepSpeedFiles {
  std::string folder;                        // of the tag
  bool is_universal = false;                 // FOLDER/zero has a folder for each parameter
  bool is_partitioned = false;               // the model's file is one for each rank, as stage 3 writes it
  std::vector<std::string> model_files;      // by data-parallel rank; one where not partitioned
  std::vector<std::string> optimizer_files;  // by data-parallel rank; empty in stage 0
};

// Whether `path` is a folder of DeepSpeed's, or one of its tags.
bool is_deepspeed(const std::string& path);

// `path`: the folder with "latest" or "latest_universal", or the tag's folder itself. Errors: kFormat and kIo for a tag
// that is not there or leaves its folder, and a rank's file that is missing; kUnsupported for files of tensor, pipeline
// and expert parallelism. Source: DeepSpeed 0.19, runtime/engine.py (names of checkpoint files).
DeepSpeedFiles find_deepspeed_files(const std::string& path);

}  // namespace intarsia::formats
