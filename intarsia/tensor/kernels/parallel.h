// Work on ATen's threads. Its own parallel_for is a template that needs our code to be compiled with OpenMP.
#pragma once

#include <cstdint>
#include <functional>

namespace intarsia::tensor {

// use(task) once for each task in [0, tasks), on up to at::get_num_threads() threads.
void for_each_task(std::int64_t tasks, const std::function<void(std::int64_t)>& use);
// use(begin, end) over [0, size) in one range a thread; fewer threads when a range would be below `grain`.
void for_each_range(std::int64_t size, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& use);
// The number of threads that it would take.
std::int64_t num_threads();

}  // namespace intarsia::tensor
