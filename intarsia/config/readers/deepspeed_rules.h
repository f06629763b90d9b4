// Second pass: what the keys of a DeepSpeed JSON mean together with flags and trainer arguments. Each function fills
// its part of draft.result.config and adds problems, reports and refusals.
#pragma once

#include "intarsia/config/draft.h"

namespace intarsia::config {

// A DeepSpeed key and the setting that means the same: a contradiction is a problem; an absent or "auto" key takes the
// setting; an "auto" that nothing settles takes `hf_default` (JSON) where Draft::auto_defaults, and is a problem
// elsewhere. A trainer's value does not reach a key that the file leaves out (unless `fill_absent`): that is reported.
void settle(const std::string& path, const char* key, const char* hf_default, bool fill_absent, Draft& draft);

// The setting `key` as "auto": it becomes the DeepSpeed key's, unless that has a value. True: nothing settles the key.
bool take_auto(const char* key, const std::string& path, Draft& draft);

// The type of the section "optimizer" or "scheduler"; nullptr when there is none, or with a problem.
const struct TypeSpec* section_type(const char* section, Draft& draft);

void resolve_precision(Draft& draft);
void resolve_autocast(Draft& draft);  // after resolve_precision
void resolve_batch(Draft& draft);
void resolve_zero(Draft& draft);
void resolve_optimizer(Draft& draft);  // after resolve_zero
void resolve_scheduler(Draft& draft);  // after resolve_optimizer
void resolve_sections(Draft& draft);   // communication, activation checkpointing, aio, ...
void resolve_run(Draft& draft);        // the run's own settings
// Any "auto" that is left takes DeepSpeed's default, as DeepSpeed drops such keys.
void drop_other_autos(Draft& draft);

}  // namespace intarsia::config
