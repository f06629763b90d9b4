// Results of matrix products that a recomputed piece keeps from its first run to its second.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace intarsia::nn {

class KeptProducts {
 public:
  // Takes in `product`, the next one of the first run. `position`: how many tensors were saved before it.
  void keep(const at::Tensor& product, std::size_t position);
  // `view` is the last product under another shape; autograd does not count it as a view, so it is watched too.
  void watch_view(const at::Tensor& view);
  // Ends the first run: what came after the last of `num_saved` saved tensors will not be asked for.
  void close(std::size_t num_saved);
  // The next product of the second run; undefined when it was not kept or was changed in place since.
  at::Tensor next();

 private:
  struct Product {
    at::Tensor value;  // a detached alias that shares the version counter
    at::Tensor view;   // likewise, or undefined
    std::size_t position = 0;
  };
  std::vector<Product> products_;
  std::size_t next_ = 0;
};

// While it lives, products on the calling thread are kept in `products` (first run) or taken from it (second run).
// `num_saved` is read at each product; null in the second run.
class ProductScope {
 public:
  ProductScope(KeptProducts* products, const std::size_t* num_saved);
  ~ProductScope();
  ProductScope(const ProductScope&) = delete;
  ProductScope& operator=(const ProductScope&) = delete;
};

}  // namespace intarsia::nn
