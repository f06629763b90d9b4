// Bodies of rows.h; see vec.h for how this is included. Internal to kernels.
#pragma once

// To the precision of T and back.
template <class T>
INTARSIA_INLINE Floats rounded(Floats x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return widened(narrowed(x));
}

INTARSIA_INLINE float sum_of(Floats x) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += x[i];
  return sum;
}

// e^x with an error below 2 units in the last place; 0 below -87.3, the largest float above 88.7.
INTARSIA_INLINE Floats exponential(Floats x) {
  const Floats low = Floats{} - 87.33F, high = Floats{} + 88.72F;
  x = x < low ? low : x;
  x = x > high ? high : x;
  const Floats magic = Floats{} + 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = x * 1.44269504F + magic;
  const Floats n = shifted - magic;
  const Floats r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  Floats p = Floats{} + 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + (r + 1.0F);
  // Times 2^n, in two factors: n may be 128.
  const Words bits = reinterpret_cast<Words>(shifted) - reinterpret_cast<Words>(magic);
  const Words half = ((bits + 256U) >> 1) - 128U, rest = bits - half;
  return p * reinterpret_cast<Floats>((half + 127U) << 23) * reinterpret_cast<Floats>((rest + 127U) << 23);
}

template <class T>
void rms_norm_of(const T* x, const T* weight, T* y, float* scale, std::int64_t width, double eps, std::int64_t begin,
                 std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const in = x + row * width;
    T* const out = y + row * width;
    Floats squares{};
    for (std::int64_t i = 0; i < width; i += kLanes) {
      const Floats value = load_part(in + i, std::min<std::int64_t>(kLanes, width - i));
      squares += value * value;
    }
    const float factor = 1.0F / std::sqrt(sum_of(squares) / static_cast<float>(width) + static_cast<float>(eps));
    scale[row] = factor;
    for (std::int64_t i = 0; i < width; i += kLanes) {
      const std::int64_t count = std::min<std::int64_t>(kLanes, width - i);
      store_part(out + i, rounded<T>(load_part(in + i, count) * factor) * load_part(weight + i, count), count);
    }
  }
}

template <class T>
void rms_norm_input_gradient_of(const T* grad, const T* x, const T* weight, const float* scale, T* x_grad,
                                std::int64_t width, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * width;
    Floats products{};
    for (std::int64_t i = 0; i < width; i += kLanes) {
      const std::int64_t count = std::min<std::int64_t>(kLanes, width - i);
      const Floats g = rounded<T>(load_part(grad + at + i, count) * load_part(weight + i, count));
      products += g * load_part(x + at + i, count);
    }
    const float factor = scale[row];
    const float pull = sum_of(products) * factor * factor * factor / static_cast<float>(width);
    for (std::int64_t i = 0; i < width; i += kLanes) {
      const std::int64_t count = std::min<std::int64_t>(kLanes, width - i);
      const Floats g = rounded<T>(load_part(grad + at + i, count) * load_part(weight + i, count));
      store_part(x_grad + at + i, g * factor - load_part(x + at + i, count) * pull, count);
    }
  }
}

// Columns [begin, end); every column adds its rows in order.
template <class T>
void rms_norm_weight_gradient_of(const T* grad, const T* x, const float* scale, T* weight_grad, std::int64_t rows,
                                 std::int64_t width, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kStrip = 4 * kLanes;
  for (std::int64_t column = begin; column < end; column += kStrip) {
    Floats sums[4] = {};
    const std::int64_t columns = std::min(kStrip, end - column);
    for (std::int64_t row = 0; row < rows; ++row)
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) {
        const std::int64_t count = std::min<std::int64_t>(kLanes, columns - part * kLanes);
        if (count <= 0) break;
        const std::int64_t at = row * width + column + part * kLanes;
        sums[part] += load_part(grad + at, count) * rounded<T>(load_part(x + at, count) * scale[row]);
      }
    for (int part = 0; part < 4; ++part) {
      const std::int64_t count = std::min<std::int64_t>(kLanes, columns - part * kLanes);
      if (count > 0) store_part(weight_grad + column + part * kLanes, sums[part], count);
    }
  }
}

// Places [begin, end), counted over samples and their places.
template <class T>
void rotary_of(const T* x, const HeadStrides& xs, const T* cos, const T* sin, T* to, const HeadStrides& ts,
               const RotaryShape& shape, bool back, std::int64_t begin, std::int64_t end) {
  const std::int64_t half = shape.head_dim / 2;
  for (std::int64_t place = begin; place < end; ++place) {
    const std::int64_t b = place / shape.length, t = place % shape.length;
    const T* const c = cos + b * shape.table_stride + t * shape.head_dim;
    const T* const s = sin + b * shape.table_stride + t * shape.head_dim;
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const T* const in = x + b * xs.batch + t * xs.place + head * xs.head;
      T* const out = to + b * ts.batch + t * ts.place + head * ts.head;
      for (std::int64_t i = 0; i < half; i += kLanes) {
        const std::int64_t count = std::min<std::int64_t>(kLanes, half - i);
        const Floats left = load_part(in + i, count), right = load_part(in + half + i, count);
        const Floats c0 = load_part(c + i, count), c1 = load_part(c + half + i, count);
        const Floats s0 = load_part(s + i, count), s1 = load_part(s + half + i, count);
        // Forward: a left half takes minus the right one's times its own sine. Its gradient takes plus, times the
        // right's.
        const Floats to_left = back ? rounded<T>(right * s1) : -rounded<T>(right * s0);
        const Floats to_right = back ? -rounded<T>(left * s0) : rounded<T>(left * s1);
        store_part(out + i, rounded<T>(left * c0) + to_left, count);
        store_part(out + half + i, rounded<T>(right * c1) + to_right, count);
      }
    }
  }
}

template <class T>
void swiglu_of(const T* gate, const T* up, T* out, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; i += kLanes) {
    const std::int64_t count = std::min<std::int64_t>(kLanes, end - i);
    const Floats x = load_part(gate + i, count);
    store_part(out + i, rounded<T>(x / (1.0F + exponential(-x))) * load_part(up + i, count), count);
  }
}

template <class T>
void swiglu_gradients_of(const T* grad, const T* gate, const T* up, T* gate_grad, T* up_grad, std::int64_t begin,
                         std::int64_t end) {
  for (std::int64_t i = begin; i < end; i += kLanes) {
    const std::int64_t count = std::min<std::int64_t>(kLanes, end - i);
    const Floats g = load_part(grad + i, count), x = load_part(gate + i, count);
    const Floats sigmoid = 1.0F / (1.0F + exponential(-x));
    store_part(up_grad + i, g * rounded<T>(x * sigmoid), count);
    store_part(gate_grad + i, rounded<T>(g * load_part(up + i, count)) * (sigmoid * (1.0F + x * (1.0F - sigmoid))),
               count);
  }
}

template <class T>
void add_to_fp32_of(float* to, const T* from, bool fresh, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; i += kLanes) {
    const std::int64_t count = std::min<std::int64_t>(kLanes, end - i);
    store_part(to + i, (fresh ? Floats{} : load_part(to + i, count)) + load_part(from + i, count), count);
  }
}

// For each of two dtypes, as the table of kernels has them.
template <class T>
const T* of(const void* data) {
  return static_cast<const T*>(data);
}
template <class T>
T* of(void* data) {
  return static_cast<T*>(data);
}

void rms_norm(const void* x, const void* weight, void* y, float* scale, const NormShape& s, bool bf16,
              std::int64_t begin, std::int64_t end) {
  if (bf16)
    rms_norm_of(of<Bf16>(x), of<Bf16>(weight), of<Bf16>(y), scale, s.width, s.eps, begin, end);
  else
    rms_norm_of(of<float>(x), of<float>(weight), of<float>(y), scale, s.width, s.eps, begin, end);
}

void rms_norm_input_gradient(const void* grad, const void* x, const void* weight, const float* scale, void* x_grad,
                             const NormShape& s, bool bf16, std::int64_t begin, std::int64_t end) {
  if (bf16)
    rms_norm_input_gradient_of(of<Bf16>(grad), of<Bf16>(x), of<Bf16>(weight), scale, of<Bf16>(x_grad), s.width, begin,
                               end);
  else
    rms_norm_input_gradient_of(of<float>(grad), of<float>(x), of<float>(weight), scale, of<float>(x_grad), s.width,
                               begin, end);
}

void rms_norm_weight_gradient(const void* grad, const void* x, const float* scale, void* weight_grad,
                              const NormShape& s, bool bf16, std::int64_t begin, std::int64_t end) {
  if (bf16)
    rms_norm_weight_gradient_of(of<Bf16>(grad), of<Bf16>(x), scale, of<Bf16>(weight_grad), s.rows, s.width, begin, end);
  else
    rms_norm_weight_gradient_of(of<float>(grad), of<float>(x), scale, of<float>(weight_grad), s.rows, s.width, begin,
                                end);
}

void rotary(const void* x, const HeadStrides& xs, const void* cos, const void* sin, void* to, const HeadStrides& ts,
            const RotaryShape& shape, bool back, bool bf16, std::int64_t begin, std::int64_t end) {
  if (bf16)
    rotary_of(of<Bf16>(x), xs, of<Bf16>(cos), of<Bf16>(sin), of<Bf16>(to), ts, shape, back, begin, end);
  else
    rotary_of(of<float>(x), xs, of<float>(cos), of<float>(sin), of<float>(to), ts, shape, back, begin, end);
}

void swiglu(const void* gate, const void* up, void* out, bool bf16, std::int64_t begin, std::int64_t end) {
  if (bf16)
    swiglu_of(of<Bf16>(gate), of<Bf16>(up), of<Bf16>(out), begin, end);
  else
    swiglu_of(of<float>(gate), of<float>(up), of<float>(out), begin, end);
}

void swiglu_gradients(const void* grad, const void* gate, const void* up, void* gate_grad, void* up_grad, bool bf16,
                      std::int64_t begin, std::int64_t end) {
  if (bf16)
    swiglu_gradients_of(of<Bf16>(grad), of<Bf16>(gate), of<Bf16>(up), of<Bf16>(gate_grad), of<Bf16>(up_grad), begin,
                        end);
  else
    swiglu_gradients_of(of<float>(grad), of<float>(gate), of<float>(up), of<float>(gate_grad), of<float>(up_grad),
                        begin, end);
}

void add_to_fp32(float* to, const void* from, bool bf16, bool fresh, std::int64_t begin, std::int64_t end) {
  if (bf16)
    add_to_fp32_of(to, of<Bf16>(from), fresh, begin, end);
  else
    add_to_fp32_of(to, of<float>(from), fresh, begin, end);
}
