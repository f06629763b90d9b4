// Building a module without memory for its parameters.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>

namespace intarsia::api {

// Runs `build` so that tensors which it makes without naming a device other than the CPU are on the meta device: they
// have shapes and no memory, and initialisation does nothing. initialize() fills parameters from the seed and their
// names. Buffers are not filled: register them, or give them values, after this. For example
//   auto model = intarsia::on_meta([] { return std::make_shared<Net>(); });
template <typename Build>
auto on_meta(Build&& build) {
  // Factory functions ask the backend-select key for the device of their options; without it they go by what the thread
  // includes.
  const c10::impl::ExcludeDispatchKeyGuard no_choice(c10::DispatchKey::BackendSelect);
  const c10::impl::IncludeDispatchKeyGuard meta(c10::DispatchKey::Meta);
  return std::forward<Build>(build)();
}

}  // namespace intarsia::api
