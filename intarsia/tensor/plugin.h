// Code that is built apart and loaded when it is first needed: what links CUDA's libraries.
#pragma once

namespace intarsia::tensor {

// The function `name` of the CUDA plugin (intarsia/cuda), which is loaded once for the process and stays. It is the
// file that INTARSIA_CUDA_PLUGIN names, else libexec/libintarsia_cuda.so of the build tree or installation.
// Errors: kUnsupported where there is no plugin, or where it cannot be loaded; the message says what is missing.
void* cuda_function(const char* name);

}  // namespace intarsia::tensor
