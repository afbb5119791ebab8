#include "millrace/ops/image/image_floats.h"

#include <algorithm>

namespace millrace {

ImageFloats::ImageFloats(const Tensor& t) {
  if (t.dtype() == DType::kFloat) {
    data_ = t.data<float>();
    return;
  }
  converted_.resize(static_cast<size_t>(t.num_elements()));
  DispatchType(RealTypes{}, t.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* in = t.data<T>();
    std::transform(in, in + t.num_elements(), converted_.begin(), [](T v) { return static_cast<float>(v); });
  });
  data_ = converted_.data();
}

void StoreFloats(const float* values, Tensor* t) {
  DispatchType(FloatTypes{}, t->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::transform(values, values + t->num_elements(), t->data<T>(), [](float v) { return static_cast<T>(v); });
  });
}

ResizeScale::ResizeScale(KernelInit& init) {
  init.Attr("align_corners", &align_corners);
  init.Attr("half_pixel_centers", &half_pixels);
  if (align_corners && half_pixels) {
    init.Fail(InvalidArgument("If half_pixel_centers is True, align_corners must be False."));
  }
}

StatusOr<Shape> ResizedShape(const Tensor& images, const Tensor& size) {
  if (images.rank() != 4) return InvalidArgument("input must be 4-dimensional", images.shape().ToString());
  if (size.rank() != 1 || size.dim(0) != 2) {
    return InvalidArgument("shape_t must have two elements: height and width, but has shape ", size.shape().ToString());
  }
  const int32_t height = size.data<int32_t>()[0], width = size.data<int32_t>()[1];
  if (height <= 0 || width <= 0) {
    return InvalidArgument("output dimensions must be positive, not ", height, " by ", width);
  }
  if (images.dim(3) == 0) return InvalidArgument("image must have at least one channel");
  if (images.dim(1) == 0 || images.dim(2) == 0) return InvalidArgument("input image must be of non-zero size");
  return Shape::Make({images.dim(0), height, width, images.dim(3)});
}

Status CheckResizeGrads(const Tensor& grads, const Tensor& original) {
  if (grads.rank() != 4) return InvalidArgument("input_grad must be 4-dimensional", grads.shape().ToString());
  if (original.rank() != 4) return InvalidArgument("original_image must be 4-dimensional", original.shape().ToString());
  if (grads.dim(0) != original.dim(0) || grads.dim(3) != original.dim(3)) {
    return InvalidArgument("gradients of shape ", grads.shape().ToString(), " do not fit images of shape ",
                           original.shape().ToString());
  }
  if (original.num_elements() == 0) return InvalidArgument("original_image must not be empty");
  return absl::OkStatus();
}

Status ResizedImagesShape(ShapeContext& c) { return TransformedImagesShape(c, 1); }

Status TransformedImagesShape(ShapeContext& c, int i) {
  MR_ASSIGN_OR_RETURN(PartialShape images, c.WithRank(0, 4));
  MR_ASSIGN_OR_RETURN(const PartialShape size_shape, c.WithRank(i, 1));
  if (size_shape.dim(0) >= 0 && size_shape.dim(0) != 2) {
    return InvalidArgument("Dimension must be 2 but is ", size_shape.dim(0));
  }
  std::vector<int64_t> size;
  const bool known = c.ConstantInts(i, &size) && size.size() == 2 && size[0] >= 0 && size[1] >= 0;
  images.set_dim(1, known ? size[0] : -1);
  images.set_dim(2, known ? size[1] : -1);
  c.set_output(0, images);
  return absl::OkStatus();
}

}  // namespace millrace
