// Blocked matrix product: b is packed in panels of kColumns columns, a in panels of kRows rows, and a tile of kRows x
// kColumns sums is held in registers. See vec.h for how this is included. Internal to kernels.
#pragma once

constexpr int kRows = kLanes == 16 ? 14 : kLanes == 8 ? 6 : 4;  // at most kLanes
constexpr int kColumns = 2 * kLanes;
constexpr std::int64_t kPanels = 16;                      // panels of a that are packed at a time
constexpr std::int64_t kDepth = 512;                      // of a packed panel of a
constexpr std::int64_t kRowStride = kDepth + 16;          // not a power of two, which would share cache sets
constexpr std::int64_t kPackedB = std::int64_t{1} << 20;  // elements of b that are packed at a time, where k allows
constexpr std::int64_t kMostColumns = 1024;
constexpr std::int64_t kLine = 16;  // floats of a cache line
constexpr std::int64_t kLineEvery = kLine * kPanels / kColumns;

// Where k is contiguous: [row][kRowStride].
template <class T>
void pack_rows(const T* from, std::int64_t row_stride, std::int64_t rows, std::int64_t depth, float* to) {
  const std::int64_t whole = depth / kLanes * kLanes;
  for (std::int64_t i = 0; i < rows; ++i, from += row_stride, to += kRowStride) {
    for (std::int64_t k = 0; k < whole; k += kLanes) store(to + k, load(from + k));
    if (whole < depth) store(to + whole, load_part(from + whole, depth - whole));
  }
}

// Where rows are contiguous: [k][kLanes], of which kRows count. `left`: rows from here to the end of the matrix.
template <class T>
void pack_rows_turned(const T* from, std::int64_t k_stride, std::int64_t left, std::int64_t depth, float* to) {
  const std::int64_t read = std::min<std::int64_t>(left, kLanes);
  if (read == kLanes) {
    for (std::int64_t k = 0; k < depth; ++k) store(to + k * kLanes, load(from + k * k_stride));
    return;
  }
  for (std::int64_t k = 0; k < depth; ++k) store(to + k * kLanes, load_part(from + k * k_stride, read));
}

// To [k][kColumns], where columns are contiguous.
template <class T>
void pack_columns(const T* from, std::int64_t k_stride, std::int64_t columns, std::int64_t depth, float* to) {
  const std::int64_t first = std::min<std::int64_t>(columns, kLanes), second = columns - first;
  if (second == kLanes) {
    for (std::int64_t k = 0; k < depth; ++k) {
      store(to + k * kColumns, load(from + k * k_stride));
      store(to + k * kColumns + kLanes, load(from + k * k_stride + kLanes));
    }
    return;
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    store(to + k * kColumns, load_part(from + k * k_stride, first));
    store(to + k * kColumns + kLanes, second == 0 ? Floats{} : load_part(from + k * k_stride + kLanes, second));
  }
}

// The same where k is contiguous.
template <class T>
void pack_columns_turned(const T* from, std::int64_t column_stride, std::int64_t columns, std::int64_t depth,
                         float* to) {
  for (std::int64_t begin = 0; begin < kColumns; begin += kLanes)
    for (std::int64_t k = 0; k < depth; k += kLanes) {
      const std::int64_t count = std::min<std::int64_t>(kLanes, depth - k);
      Floats square[kLanes];
      for (std::int64_t j = 0; j < kLanes; ++j)
        square[j] = begin + j < columns ? load_part(from + (begin + j) * column_stride + k, count) : Floats{};
      transpose(square);
      for (std::int64_t i = 0; i < count; ++i) store(to + (k + i) * kColumns + begin, square[i]);
    }
}

// Adds `depth` products to each element of a tile of `sums`; from zero when `fresh`. Meanwhile one part in kPanels of a
// packed panel is fetched from `next` on: a panel of b lies in a far cache when its first tile comes.
template <int rows, std::int64_t row_stride, std::int64_t k_stride>
void add_tile(const float* a, const float* b, std::int64_t depth, float* sums, std::int64_t sums_stride, bool fresh,
              const float* next) {
  Floats tile[rows][2];
#pragma GCC unroll 14
  for (int i = 0; i < rows; ++i) {
    tile[i][0] = fresh ? Floats{} : load(sums + i * sums_stride);
    tile[i][1] = fresh ? Floats{} : load(sums + i * sums_stride + kLanes);
  }
  for (std::int64_t k = 0; k < depth; ++k, a += k_stride, b += kColumns) {
    if (k % kLineEvery == 0) __builtin_prefetch(next + k / kLineEvery * kLine, 0, 2);
    const Floats left = load(b), right = load(b + kLanes);
#pragma GCC unroll 14
    for (int i = 0; i < rows; ++i) {
      const float factor = a[i * row_stride];
      tile[i][0] += factor * left;
      tile[i][1] += factor * right;
    }
  }
#pragma GCC unroll 14
  for (int i = 0; i < rows; ++i) {
    store(sums + i * sums_stride, tile[i][0]);
    store(sums + i * sums_stride + kLanes, tile[i][1]);
  }
}

using TileAdder = void (*)(const float*, const float*, std::int64_t, float*, std::int64_t, bool, const float*);
template <std::int64_t row_stride, std::int64_t k_stride, std::size_t... I>
constexpr std::array<TileAdder, kRows> tile_adders(std::index_sequence<I...>) {
  return {add_tile<static_cast<int>(I) + 1, row_stride, k_stride>...};
}
constexpr auto kAdders = tile_adders<kRowStride, 1>(std::make_index_sequence<kRows>{});
constexpr auto kAddersTurned = tile_adders<1, kLanes>(std::make_index_sequence<kRows>{});

template <class T>
void write_rows(const float* sums, std::int64_t sums_stride, std::int64_t rows, std::int64_t columns, T* to,
                std::int64_t to_stride, bool add) {
  if (columns == kColumns && !add) {
    for (std::int64_t i = 0; i < rows; ++i, to += to_stride, sums += sums_stride) {
      store(to, load(sums));
      store(to + kLanes, load(sums + kLanes));
    }
    return;
  }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; j += kLanes) {
      const std::int64_t count = std::min<std::int64_t>(kLanes, columns - j);
      const Floats sum = load(sums + i * sums_stride + j);
      T* const at = to + i * to_stride + j;
      store_part(at, add ? load_part(at, count) + sum : sum, count);
    }
}

template <class T>
const T* element(const ProductInput& x, std::int64_t i, std::int64_t j) {
  return static_cast<const T*>(x.data) + i * x.row_stride + j * x.column_stride;
}

void write_tile(const float* sums, std::int64_t sums_stride, std::int64_t rows, std::int64_t columns,
                const ProductOutput& out, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * out.row_stride + column;
  if (out.bf16)
    write_rows(sums, sums_stride, rows, columns, static_cast<Bf16*>(out.data) + at, out.row_stride, out.add);
  else
    write_rows(sums, sums_stride, rows, columns, static_cast<float*>(out.data) + at, out.row_stride, out.add);
}

template <class A, class B>
void product_of(const ProductInput& a, const ProductInput& b, const ProductOutput& out, std::int64_t m, std::int64_t n,
                std::int64_t k, ProductScratch& scratch) {
  const bool a_turned = a.column_stride != 1, b_turned = b.column_stride != 1;
  const auto& adders = a_turned ? kAddersTurned : kAdders;
  constexpr std::int64_t kBlockRows = kPanels * kRows,
                         kPanelNumel = std::max<std::int64_t>(kRows * kRowStride, kLanes * kDepth);
  const std::int64_t fitting = std::max<std::int64_t>(1, kPackedB / k / kColumns) * kColumns;
  const std::int64_t most = std::min({kMostColumns, fitting, (n + kColumns - 1) / kColumns * kColumns});
  // Where one pass is all, a tile's sums are written out before they leave the nearest cache.
  const bool one_pass = k <= kDepth;
  const std::int64_t sums_stride = one_pass ? kColumns : most + kLanes;
  float* const packed_b = scratch.take(0, most * k);
  float* const packed_a = scratch.take(1, kPanels * kPanelNumel);
  float* const sums = scratch.take(2, (one_pass ? kRows : kBlockRows) * sums_stride);
  for (std::int64_t column = 0; column < n; column += most) {
    const std::int64_t columns = std::min(most, n - column);
    for (std::int64_t j = 0; j < columns; j += kColumns)
      for (std::int64_t p = 0; p < k; p += kDepth) {
        const std::int64_t depth = std::min(kDepth, k - p), width = std::min<std::int64_t>(kColumns, columns - j);
        float* const to = packed_b + j * k + p * kColumns;
        const B* const from = element<B>(b, p, column + j);
        b_turned ? pack_columns_turned(from, b.column_stride, width, depth, to)
                 : pack_columns(from, b.row_stride, width, depth, to);
      }
    for (std::int64_t row = 0; row < m; row += kBlockRows) {
      const std::int64_t rows = std::min(kBlockRows, m - row);
      for (std::int64_t p = 0; p < k; p += kDepth) {
        const std::int64_t depth = std::min(kDepth, k - p);
        for (std::int64_t i = 0; i < rows; i += kRows) {
          const std::int64_t height = std::min<std::int64_t>(kRows, rows - i);
          float* const to = packed_a + i / kRows * kPanelNumel;
          const A* const from = element<A>(a, row + i, p);
          a_turned ? pack_rows_turned(from, a.column_stride, m - row - i, depth, to)
                   : pack_rows(from, a.row_stride, height, depth, to);
        }
        for (std::int64_t j = 0; j < columns; j += kColumns) {
          const std::int64_t width = std::min<std::int64_t>(kColumns, columns - j), last = columns - width;
          const float* const panel = packed_b + j * k + p * kColumns;
          const float* const next = j < last ? panel + kColumns * k : packed_b;
          for (std::int64_t i = 0; i < rows; i += kRows) {
            const std::int64_t height = std::min<std::int64_t>(kRows, rows - i);
            float* const to = one_pass ? sums : sums + i * sums_stride + j;
            adders[static_cast<std::size_t>(height - 1)](packed_a + i / kRows * kPanelNumel, panel, depth, to,
                                                         sums_stride, p == 0,
                                                         next + i / kRows * (depth / kLineEvery * kLine));
            if (p + depth == k) write_tile(to, sums_stride, height, width, out, row + i, column + j);
          }
        }
      }
    }
  }
}

void product(const ProductInput& a, const ProductInput& b, const ProductOutput& out, std::int64_t m, std::int64_t n,
             std::int64_t k, ProductScratch& scratch) {
  if (a.bf16 && b.bf16) return product_of<Bf16, Bf16>(a, b, out, m, n, k, scratch);
  if (a.bf16) return product_of<Bf16, float>(a, b, out, m, n, k, scratch);
  if (b.bf16) return product_of<float, Bf16>(a, b, out, m, n, k, scratch);
  return product_of<float, float>(a, b, out, m, n, k, scratch);
}
