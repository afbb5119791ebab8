#include "millrace/data/mnist.h"

#include <utility>

#include "millrace/io/idx.h"

namespace millrace {
namespace {

constexpr int64_t kClasses = 10;

struct IdxFile {
  std::string path;
  Tensor content;
};

StatusOr<IdxFile> ReadPlainOrGzip(const std::string& directory, const std::string& name, FileSystem* files) {
  const std::string plain = JoinPath(directory, name);
  for (const std::string& path : {plain, plain + ".gz"}) {
    const Status exists = files->Exists(path);
    if (absl::IsNotFound(exists)) continue;
    MR_RETURN_IF_ERROR(exists);
    MR_ASSIGN_OR_RETURN(Tensor content, ReadIdx(path, files));
    return IdxFile{path, std::move(content)};
  }
  return NotFound("cannot find ", plain, " or ", plain, ".gz");
}

StatusOr<Tensor> LoadImages(const IdxFile& file) {
  const Tensor& raw = file.content;
  if (raw.dtype() != DType::kUInt8 || raw.rank() != 3) {
    return InvalidArgument(file.path, " does not hold images but ", raw.dtype(), raw.shape().ToString());
  }
  Tensor images(DType::kFloat, Shape({raw.dim(0), raw.dim(1) * raw.dim(2)}));
  const uint8_t* from = raw.data<uint8_t>();
  float* to = images.data<float>();
  const int64_t n = raw.num_elements();
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]) * (1.0f / 255);
  return images;
}

StatusOr<Tensor> LoadLabels(const IdxFile& file, int64_t count) {
  const Tensor& raw = file.content;
  if (raw.dtype() != DType::kUInt8 || raw.rank() != 1) {
    return InvalidArgument(file.path, " does not hold labels but ", raw.dtype(), raw.shape().ToString());
  }
  if (raw.dim(0) != count) {
    return InvalidArgument(file.path, " has ", raw.dim(0), " labels for ", count, " images");
  }
  Tensor labels(DType::kInt64, raw.shape());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = raw.data<uint8_t>()[i];
    if (label >= kClasses) return InvalidArgument(file.path, ": label ", i, " is ", label);
    labels.data<int64_t>()[i] = label;
  }
  return labels;
}

Status LoadPart(const std::string& directory, const std::string& part, FileSystem* files, Tensor* images,
                Tensor* labels) {
  MR_ASSIGN_OR_RETURN(IdxFile image_file, ReadPlainOrGzip(directory, part + "-images-idx3-ubyte", files));
  MR_ASSIGN_OR_RETURN(*images, LoadImages(image_file));
  MR_ASSIGN_OR_RETURN(IdxFile label_file, ReadPlainOrGzip(directory, part + "-labels-idx1-ubyte", files));
  MR_ASSIGN_OR_RETURN(*labels, LoadLabels(label_file, images->dim(0)));
  return absl::OkStatus();
}

}  // namespace

StatusOr<Mnist> LoadMnist(const std::string& directory, FileSystem* files) {
  Mnist mnist;
  MR_RETURN_IF_ERROR(LoadPart(directory, "train", files, &mnist.train_images, &mnist.train_labels));
  MR_RETURN_IF_ERROR(LoadPart(directory, "t10k", files, &mnist.test_images, &mnist.test_labels));
  return mnist;
}

}  // namespace millrace
