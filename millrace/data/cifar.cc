#include "millrace/data/cifar.h"

#include <utility>

#include "millrace/io/cifar.h"

namespace millrace {

StatusOr<Cifar10> LoadCifar10(const std::string& directory, FileSystem* files) {
  MR_ASSIGN_OR_RETURN(CifarFolder folder, ReadCifarFolder(directory, files));
  return Cifar10{.train = {std::move(folder.train.images), std::move(folder.train.labels)},
                 .test = {std::move(folder.test.images), std::move(folder.test.labels)},
                 .class_names = std::move(folder.class_names),
                 .absent = std::move(folder.absent)};
}

}  // namespace millrace
