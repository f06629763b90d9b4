// Everything that a program needs that trains a torch::nn module of its own. docs/cpp.md shows how.
#pragma once

#include "intarsia/api/engine.h"
#include "intarsia/api/meta.h"
#include "intarsia/base/error.h"

namespace intarsia {

using api::Config;
using api::Engine;
using api::initialize;
using api::on_meta;
using api::Options;
using nn::InitValue;
using nn::Unit;
using nn::wrap_names;
using nn::wrap_size;
using nn::wrap_types;

}  // namespace intarsia
