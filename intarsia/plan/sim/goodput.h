// What failures and checkpoints leave of a long run.
#pragma once

namespace intarsia::plan {

struct FailureModel {
  double devices = 1;
  double hours_between_failures = 50000;  // of one device with its share of the host
  double checkpoint_seconds = 60;         // that a checkpoint keeps the run waiting
  double restart_seconds = 600;           // from a failure until training goes on
};

struct Goodput {
  double seconds_between_failures = 0;  // of the whole run
  double young_seconds = 0;             // interval between checkpoints: sqrt(2 C M)
  double daly_seconds = 0;              // the same, of higher order
  double share = 0;                     // of the time that is training which counts, with Daly's interval
};

// Source: Young, "A first order approximation to the optimum checkpoint interval" (1974); Daly, "A higher order
// estimate of the optimum checkpoint interval for restart dumps" (2006), equations 20 and 37. Errors: kConfig when a
// checkpoint takes longer than twice the time between failures.
Goodput goodput(const FailureModel& model);

}  // namespace intarsia::plan
