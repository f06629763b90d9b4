// Whether the pieces of a tensor are the whole tensor, each element once.
#include <algorithm>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/formats/peers/logical_checkpoint.h"
#include "intarsia/formats/tensor_file.h"

namespace intarsia::formats {
namespace {

constexpr std::size_t kMaxBoxes = 65'536;  // of one tensor; their comparison is quadratic at worst

std::string box_text(const TensorPiece& piece) {
  return concat("at ", shape_text(piece.offsets), " of size ", shape_text(piece.sizes));
}

bool meet(const TensorPiece& a, const TensorPiece& b) {
  for (std::size_t dim = 0; dim < a.sizes.size(); ++dim)
    if (a.offsets[dim] >= b.offsets[dim] + b.sizes[dim] || b.offsets[dim] >= a.offsets[dim] + a.sizes[dim])
      return false;
  return true;
}

}  // namespace

void check_pieces(const std::string& path, const LogicalTensor& tensor) {
  const auto refuse = [&](const auto&... parts) {
    fail(ErrorKind::kFormat, printable(path), ": \"", printable(tensor.stored_name()), "\" ", parts...);
  };
  std::int64_t numel = 1;
  for (const std::int64_t size : tensor.shape)
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel) || numel > (std::int64_t{1} << 59))
      refuse("has the shape ", shape_text(tensor.shape), ", which cannot be");
  if (tensor.pieces.size() > kMaxBoxes) refuse("has ", tensor.pieces.size(), " pieces; up to ", kMaxBoxes, " are read");
  std::vector<const TensorPiece*> boxes;
  std::int64_t covered = 0;
  const std::vector<std::int64_t> flat = {numel};
  for (const TensorPiece& piece : tensor.pieces) {
    const bool is_flat = piece.sizes.size() == 1 && tensor.shape.size() != 1;
    const std::vector<std::int64_t>& whole = is_flat ? flat : tensor.shape;
    if (piece.sizes.empty() || piece.sizes.size() != whole.size() || piece.offsets.size() != whole.size())
      refuse("has a piece ", box_text(piece), ", its shape is ", shape_text(tensor.shape));
    bool empty = false;
    for (std::size_t dim = 0; dim < whole.size(); ++dim) {
      if (piece.offsets[dim] < 0 || piece.sizes[dim] < 0 || piece.sizes[dim] > whole[dim] ||
          piece.offsets[dim] > whole[dim] - piece.sizes[dim])
        refuse("has a piece ", box_text(piece), ", which runs past the tensor ", shape_text(whole));
      empty = empty || piece.sizes[dim] == 0;
    }
    if (empty) continue;
    covered = std::min(covered, numel + 1) + piece.numel();  // cannot overflow: both are below 2^60
    boxes.push_back(&piece);
    if (piece.sizes.size() != boxes.front()->sizes.size()) refuse("has pieces of two kinds");
  }
  // Sorted by their first dimension, a box can meet only those that begin before its end.
  std::sort(boxes.begin(), boxes.end(),
            [](const TensorPiece* a, const TensorPiece* b) { return a->offsets < b->offsets; });
  for (std::size_t i = 0; i < boxes.size(); ++i)
    for (std::size_t j = i + 1; j < boxes.size() && boxes[j]->offsets[0] < boxes[i]->offsets[0] + boxes[i]->sizes[0];
         ++j)
      if (meet(*boxes[i], *boxes[j]))
        refuse("has two pieces that overlap: ", box_text(*boxes[i]), " and ", box_text(*boxes[j]));
  if (covered != numel) refuse("is not complete: its pieces have ", covered, " of ", numel, " elements");
}

}  // namespace intarsia::formats
