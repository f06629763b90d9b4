// Bodies of attention.h out of the tiles of product_body.h; see vec.h for how this is included, after product_body.h
// and rows_body.h. Internal to kernels.
//
// A block of kQueries queries at a time: their scores with all keys that they see, [chunk of kDepth keys][query]
// [kRowStride], softmax row by row, then products with the values. Keys and values of a head are packed once.
#pragma once

constexpr std::int64_t kQueryPanels = 56 / kRows;  // 56 queries, or a little fewer
constexpr std::int64_t kQueries = kQueryPanels * kRows;
constexpr std::int64_t kChunk = kQueries * kRowStride;  // of scores
// Where what is summed over lies kRowStride apart: probabilities and their gradients, over queries.
constexpr auto kAddersAcross = tile_adders<1, kRowStride>(std::make_index_sequence<kRows>{});

INTARSIA_INLINE std::int64_t rounded_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

// Places [t, d] of one head.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;
  T* row(std::int64_t t) const { return data + t * stride; }
};
template <class T>
HeadRows<const T> rows_of(const HeadsInput& x, std::int64_t b, std::int64_t head) {
  return {static_cast<const T*>(x.data) + b * x.strides.batch + head * x.strides.head, x.strides.place};
}
template <class T>
HeadRows<T> rows_of(const HeadsOutput& x, std::int64_t b, std::int64_t head) {
  return {static_cast<T*>(x.data) + b * x.strides.batch + head * x.strides.head, x.strides.place};
}

// To [panel of kColumns rows][d][kColumns]: a product's right side that sums over d.
template <class T>
void pack_over_d(const HeadRows<const T>& x, std::int64_t rows, std::int64_t d, float* to) {
  for (std::int64_t j = 0; j < rows; j += kColumns)
    pack_columns_turned(x.row(j), x.stride, std::min<std::int64_t>(kColumns, rows - j), d, to + j * d);
}

// To [panel of kColumns places of d][row][kColumns], `panel` floats a panel: one that sums over rows.
template <class T>
void pack_over_rows(const HeadRows<const T>& x, std::int64_t first, std::int64_t rows, std::int64_t d, float* to,
                    std::int64_t panel) {
  for (std::int64_t j = 0; j < d; j += kColumns)
    pack_columns(x.row(first) + j, x.stride, std::min<std::int64_t>(kColumns, d - j), rows, to + j / kColumns * panel);
}

// A block of queries and what is computed for it.
struct QueryBlock {
  std::int64_t first = 0, rows = 0, end = 0;  // places [first, end)
  const AttentionShape& shape;
  std::int64_t padded;  // head_dim, to whole tiles

  std::int64_t height(std::int64_t i) const { return std::min<std::int64_t>(kRows, rows - i); }
  // Keys that the panel of queries from row i on sees.
  std::int64_t keys_of(std::int64_t i) const { return first + i + height(i); }

  // scores = a b^T. a: [query][kRowStride], b: packed over d.
  void multiply_keys(const float* a, const float* b, float* scores) const {
    for (std::int64_t i = 0; i < rows; i += kRows)
      for (std::int64_t j = 0; j < keys_of(i); j += kColumns)
        kAdders[static_cast<std::size_t>(height(i) - 1)](a + i * kRowStride, b + j * shape.head_dim, shape.head_dim,
                                                         scores + j / kDepth * kChunk + i * kRowStride + j % kDepth,
                                                         kRowStride, true, b);
  }

  // sums [query][padded] = scores b. b: packed over all rows of the head.
  void multiply_values(const float* scores, const float* b, float* sums) const {
    for (std::int64_t i = 0; i < rows; i += kRows)
      for (std::int64_t d = 0; d < padded; d += kColumns)
        for (std::int64_t j = 0; j < keys_of(i); j += kDepth)
          kAdders[static_cast<std::size_t>(height(i) - 1)](
              scores + j / kDepth * kChunk + i * kRowStride, b + d * shape.length + j * kColumns,
              std::min(kDepth, keys_of(i) - j), sums + i * padded + d, padded, j == 0, b);
  }

  // sums [key][padded] += scores^T b. b: packed over the block's rows. A key's sum begins at its own query.
  void add_over_queries(const float* scores, const float* b, float* sums) const {
    for (std::int64_t chunk = 0; chunk < end; chunk += kDepth)
      for (std::int64_t j = chunk; j < std::min(end, chunk + kDepth); j += kRows) {
        const std::int64_t keys = std::min({std::int64_t{kRows}, end - j, chunk + kDepth - j});
        const std::int64_t from = std::max<std::int64_t>(0, j - first);
        for (std::int64_t d = 0; d < padded; d += kColumns)
          kAddersAcross[static_cast<std::size_t>(keys - 1)](
              scores + chunk / kDepth * kChunk + from * kRowStride + j - chunk, b + d * kQueries + from * kColumns,
              rows - from, sums + j * padded + d, padded, false, b);
      }
  }

  // use(where, keys from there to what row i sees) for each chunk of a row of scores; more than kDepth may be left.
  template <class Use>
  void for_chunks(std::int64_t i, const Use& use) const {
    for (std::int64_t j = 0; j <= first + i; j += kDepth)
      use(j / kDepth * kChunk + i * kRowStride, std::min(kDepth, first + i + 1 - j));
  }

  // Zeros where row i sees nothing and others of the block do.
  void clear_unseen(std::int64_t i, float* scores) const {
    for (std::int64_t j = first + i + 1; j < end; ++j) scores[j / kDepth * kChunk + i * kRowStride + j % kDepth] = 0;
  }
};

INTARSIA_INLINE Words lane_numbers() {
  Words lanes{};
  for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<std::uint32_t>(i);
  return lanes;
}
// The first `count` lanes of x, `other` in those behind.
INTARSIA_INLINE Floats first_lanes(Floats x, std::int64_t count, float other) {
  if (count >= kLanes) return x;
  const Words least = Words{} + static_cast<std::uint32_t>(count);
  return lane_numbers() < least ? x : Floats{} + other;
}

// Row i of the scores becomes exp(scale (score - largest)). Returns the sum; `largest` is scaled.
INTARSIA_INLINE float exponentials(const QueryBlock& block, std::int64_t i, float* scores, float& largest) {
  const auto scale = static_cast<float>(block.shape.scale);
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  Floats most = Floats{} + lowest;
  block.for_chunks(i, [&](std::int64_t at, std::int64_t count) {
    for (std::int64_t j = 0; j < count; j += kLanes) {
      const Floats x = first_lanes(load(scores + at + j), count - j, lowest);
      most = x > most ? x : most;  // not a number is never larger, and shows in the sum
    }
  });
  largest = lowest;
  for (int lane = 0; lane < kLanes; ++lane) largest = most[lane] > largest ? most[lane] : largest;
  largest *= scale;
  Floats sums{};
  block.for_chunks(i, [&](std::int64_t at, std::int64_t count) {
    for (std::int64_t j = 0; j < count; j += kLanes) {
      const Floats x = first_lanes(exponential(load(scores + at + j) * scale - largest), count - j, 0);
      store(scores + at + j, x);
      sums += x;
    }
  });
  return sum_of(sums);
}

template <class T>
void attention_of(const HeadsInput& q, const HeadsInput& k, const HeadsInput& v, const HeadsOutput& out, float* log_sum,
                  const AttentionShape& shape, ProductScratch& scratch, std::int64_t begin, std::int64_t end) {
  const std::int64_t d = shape.head_dim, padded = rounded_up(d, kColumns), length = shape.length;
  const std::int64_t keys_numel = rounded_up(length, kColumns) * d, values_numel = length * padded;
  const std::int64_t scores_numel = rounded_up(length, kDepth) / kDepth * kChunk;
  float* const keys = scratch.take(0, keys_numel + values_numel + scores_numel + kChunk + kQueries * padded);
  float* const values = keys + keys_numel;
  float* const scores = values + values_numel;
  float* const queries = scores + scores_numel;
  float* const sums = queries + kChunk;
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t b = item / shape.kv_heads, kv_head = item % shape.kv_heads;
    pack_over_d(rows_of<T>(k, b, kv_head), length, d, keys);
    pack_over_rows(rows_of<T>(v, b, kv_head), 0, length, d, values, length * kColumns);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for (std::int64_t first = 0; first < length; first += kQueries) {
        const std::int64_t rows = std::min(kQueries, length - first);
        const QueryBlock block{.first = first, .rows = rows, .end = first + rows, .shape = shape, .padded = padded};
        const HeadRows<const T> from = rows_of<T>(q, b, head);
        const HeadRows<T> to = rows_of<T>(out, b, head);
        pack_rows(from.row(first), from.stride, rows, d, queries);
        block.multiply_keys(queries, keys, scores);
        float factors[kQueries];
        for (std::int64_t i = 0; i < rows; ++i) {
          float largest = 0;
          const float sum = exponentials(block, i, scores, largest);
          block.clear_unseen(i, scores);
          factors[i] = 1.0F / sum;
          log_sum[(b * shape.heads + head) * length + first + i] = largest + std::log(sum);
        }
        block.multiply_values(scores, values, sums);
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < d; j += kLanes)
            store_part(to.row(first + i) + j, load(sums + i * padded + j) * factors[i],
                       std::min<std::int64_t>(kLanes, d - j));
      }
  }
}

template <class T>
void write_heads(const float* sums, std::int64_t padded, std::int64_t rows, std::int64_t d, const HeadRows<T>& to) {
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t j = 0; j < d; j += kLanes)
      store_part(to.row(t) + j, load(sums + t * padded + j), std::min<std::int64_t>(kLanes, d - j));
}

// Row i: scores become probabilities, and `grads`, of the probabilities, those of the scores.
INTARSIA_INLINE void score_gradients(const QueryBlock& block, std::int64_t i, float* scores, float* grads,
                                     float log_sum, float delta) {
  const auto scale = static_cast<float>(block.shape.scale);
  block.for_chunks(i, [&](std::int64_t at, std::int64_t count) {
    for (std::int64_t j = 0; j < count; j += kLanes) {
      const Floats p = exponential(load(scores + at + j) * scale - log_sum);
      const Floats g = p * (load(grads + at + j) - delta) * scale;
      store(scores + at + j, first_lanes(p, count - j, 0));
      store(grads + at + j, first_lanes(g, count - j, 0));
    }
  });
  block.clear_unseen(i, scores);
  block.clear_unseen(i, grads);
}

template <class T>
float row_product(const T* a, const T* b, std::int64_t d) {
  Floats sums{};
  for (std::int64_t j = 0; j < d; j += kLanes) {
    const std::int64_t count = std::min<std::int64_t>(kLanes, d - j);
    sums += load_part(a + j, count) * load_part(b + j, count);
  }
  return sum_of(sums);
}

template <class T>
void attention_gradients_of(const HeadsInput& grad, const HeadsInput& q, const HeadsInput& k, const HeadsInput& v,
                            const HeadsInput& out, const float* log_sum, const AttentionGradients& to,
                            const AttentionShape& shape, ProductScratch& scratch, std::int64_t begin,
                            std::int64_t end) {
  const std::int64_t d = shape.head_dim, padded = rounded_up(d, kColumns), length = shape.length;
  const std::int64_t over_d = rounded_up(length, kColumns) * d, over_rows = length * padded;
  const std::int64_t scores_numel = rounded_up(length, kDepth) / kDepth * kChunk;
  const std::int64_t side = kQueries * padded;
  float* const keys = scratch.take(0, 2 * over_d + 3 * over_rows + 2 * scores_numel + 2 * kChunk + 3 * side);
  float* const values = keys + over_d;
  float* const keys_by_row = values + over_d;
  float* const key_sums = keys_by_row + over_rows;
  float* const value_sums = key_sums + over_rows;
  float* const scores = value_sums + over_rows;
  float* const score_grads = scores + scores_numel;
  float* const queries = score_grads + scores_numel;
  float* const out_grads = queries + kChunk;
  float* const queries_by_row = out_grads + kChunk;
  float* const grads_by_row = queries_by_row + side;
  float* const query_sums = grads_by_row + side;
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t b = item / shape.kv_heads, kv_head = item % shape.kv_heads;
    pack_over_d(rows_of<T>(k, b, kv_head), length, d, keys);
    pack_over_d(rows_of<T>(v, b, kv_head), length, d, values);
    pack_over_rows(rows_of<T>(k, b, kv_head), 0, length, d, keys_by_row, length * kColumns);
    std::fill_n(key_sums, 2 * over_rows, 0.0F);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const HeadRows<const T> of_q = rows_of<T>(q, b, head), of_grad = rows_of<T>(grad, b, head),
                              of_out = rows_of<T>(out, b, head);
      const HeadRows<T> to_q = rows_of<T>(to.q, b, head);
      for (std::int64_t first = 0; first < length; first += kQueries) {
        const std::int64_t rows = std::min(kQueries, length - first);
        const QueryBlock block{.first = first, .rows = rows, .end = first + rows, .shape = shape, .padded = padded};
        pack_rows(of_q.row(first), of_q.stride, rows, d, queries);
        pack_rows(of_grad.row(first), of_grad.stride, rows, d, out_grads);
        pack_over_rows(of_q, first, rows, d, queries_by_row, kQueries * kColumns);
        pack_over_rows(of_grad, first, rows, d, grads_by_row, kQueries * kColumns);
        block.multiply_keys(queries, keys, scores);
        block.multiply_keys(out_grads, values, score_grads);
        for (std::int64_t i = 0; i < rows; ++i)
          score_gradients(block, i, scores, score_grads, log_sum[(b * shape.heads + head) * length + first + i],
                          row_product(of_grad.row(first + i), of_out.row(first + i), d));
        block.add_over_queries(scores, grads_by_row, value_sums);
        block.add_over_queries(score_grads, queries_by_row, key_sums);
        block.multiply_values(score_grads, keys_by_row, query_sums);
        write_heads(query_sums, padded, rows, d, HeadRows<T>{to_q.row(first), to_q.stride});
      }
    }
    write_heads(key_sums, padded, length, d, rows_of<T>(to.k, b, kv_head));
    write_heads(value_sums, padded, length, d, rows_of<T>(to.v, b, kv_head));
  }
}

void attention(const HeadsInput& q, const HeadsInput& k, const HeadsInput& v, const HeadsOutput& out, float* log_sum,
               const AttentionShape& shape, bool bf16, ProductScratch& scratch, std::int64_t begin, std::int64_t end) {
  if (bf16)
    attention_of<Bf16>(q, k, v, out, log_sum, shape, scratch, begin, end);
  else
    attention_of<float>(q, k, v, out, log_sum, shape, scratch, begin, end);
}

void attention_gradients(const HeadsInput& grad, const HeadsInput& q, const HeadsInput& k, const HeadsInput& v,
                         const HeadsInput& out, const float* log_sum, const AttentionGradients& to,
                         const AttentionShape& shape, bool bf16, ProductScratch& scratch, std::int64_t begin,
                         std::int64_t end) {
  if (bf16)
    attention_gradients_of<Bf16>(grad, q, k, v, out, log_sum, to, shape, scratch, begin, end);
  else
    attention_gradients_of<float>(grad, q, k, v, out, log_sum, to, shape, scratch, begin, end);
}
