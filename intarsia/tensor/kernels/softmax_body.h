// Bodies of softmax.h; see vec.h for how this is included, after rows_body.h. Internal to kernels.
#pragma once

template <class T>
void add_to_softmax_of(const T* logits, std::int64_t columns, float* maximum, float* sum, std::int64_t begin,
                       std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const in = logits + row * columns;
    const std::int64_t whole = columns / kLanes * kLanes;
    float largest = maximum[row];
    Floats most = Floats{} + largest;
    for (std::int64_t i = 0; i < whole; i += kLanes) {
      const Floats x = load(in + i);
      most = x > most ? x : most;  // not a number is never larger, and shows in the sum
    }
    for (int i = 0; i < kLanes; ++i) largest = most[i] > largest ? most[i] : largest;
    for (std::int64_t i = whole; i < columns; ++i) {
      const float x = load_part(in + i, 1)[0];
      largest = x > largest ? x : largest;
    }
    Floats sums{};
    for (std::int64_t i = 0; i < whole; i += kLanes) sums += exponential(load(in + i) - largest);
    float total = sum_of(sums);
    if (whole < columns) {
      const Floats last = exponential(load_part(in + whole, columns - whole) - largest);
      for (std::int64_t i = 0; i < columns - whole; ++i) total += last[i];
    }
    const float before = maximum[row] == largest ? 1.0F : exponential(Floats{} + (maximum[row] - largest))[0];
    sum[row] = sum[row] * before + total;
    maximum[row] = largest;
  }
}

template <class T>
void softmax_gradient_of(T* logits, const LogitTile& tile, const float* log_sum, const std::int64_t* targets,
                         std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    T* const at = logits + row * tile.columns;
    if (targets[row] < 0) {
      std::memset(at, 0, static_cast<std::size_t>(tile.columns) * sizeof(T));
      continue;
    }
    const std::int64_t target = targets[row] - tile.first;
    const bool here = target >= 0 && target < tile.columns;
    const float chosen = here ? exponential(Floats{} + (load_part(at + target, 1)[0] - log_sum[row]))[0] - 1.0F : 0.0F;
    for (std::int64_t i = 0; i < tile.columns; i += kLanes) {
      const std::int64_t count = std::min<std::int64_t>(kLanes, tile.columns - i);
      store_part(at + i, exponential(load_part(at + i, count) - log_sum[row]), count);
    }
    if (here) store_part(at + target, Floats{} + chosen, 1);
  }
}

void add_to_softmax(const void* logits, const LogitTile& tile, float* maximum, float* sum, bool bf16,
                    std::int64_t begin, std::int64_t end) {
  if (bf16)
    add_to_softmax_of(of<Bf16>(logits), tile.columns, maximum, sum, begin, end);
  else
    add_to_softmax_of(of<float>(logits), tile.columns, maximum, sum, begin, end);
}

void softmax_gradient(void* logits, const LogitTile& tile, const float* log_sum, const std::int64_t* targets, bool bf16,
                      std::int64_t begin, std::int64_t end) {
  if (bf16)
    softmax_gradient_of(of<Bf16>(logits), tile, log_sum, targets, begin, end);
  else
    softmax_gradient_of(of<float>(logits), tile, log_sum, targets, begin, end);
}
