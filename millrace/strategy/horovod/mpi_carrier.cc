#include "millrace/strategy/horovod/mpi_carrier.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "millrace/collective/reduction.h"
#include "millrace/strategy/horovod/mpi_library.h"

namespace millrace::hvd {
namespace {

using collective::Reduction;

// MPI counts in int; large operations are made in pieces.
constexpr int64_t kPiece = 1 << 28;

class MpiCarrier final : public Carrier {
 public:
  static StatusOr<std::unique_ptr<Carrier>> Make() {
    std::unique_ptr<MpiCarrier> carrier(new MpiCarrier);
    MR_RETURN_IF_ERROR(carrier->Start());
    return carrier;
  }
  // After an error MPI_Finalize may block; mpirun notices that it was not called, and ends the job.
  ~MpiCarrier() override = default;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }

  Status AllReduce(Tensor* tensor, Reduction reduction) override {
    if (tensor->dtype() == DType::kHalf) return AllReduceAsFloat<half>(tensor, reduction);
    if (tensor->dtype() == DType::kBFloat16) return AllReduceAsFloat<bfloat16>(tensor, reduction);
    MR_ASSIGN_OR_RETURN(const MpiLibrary::Handle type, TypeOf(tensor->dtype()));
    Own(tensor);
    auto* const data = static_cast<char*>(tensor->raw_data());
    const size_t size = SizeOf(tensor->dtype());
    for (int64_t done = 0; done < tensor->num_elements(); done += kPiece) {
      const auto count = static_cast<int>(std::min(kPiece, tensor->num_elements() - done));
      MR_RETURN_IF_ERROR(mpi_->Check(mpi_->Allreduce(MpiLibrary::kInPlace, data + static_cast<size_t>(done) * size,
                                                     count, type, OpOf(reduction), comm_),
                                     "MPI_Allreduce"));
    }
    collective::FinishReduction(tensor->dtype(), reduction, data, tensor->num_elements(), size_);
    return absl::OkStatus();
  }

  Status Broadcast(Tensor* tensor, int root) override {
    Own(tensor);
    auto* const data = static_cast<char*>(tensor->raw_data());
    const auto bytes = static_cast<int64_t>(tensor->TotalBytes());
    for (int64_t done = 0; done < bytes; done += kPiece) {
      const auto count = static_cast<int>(std::min(kPiece, bytes - done));
      MR_RETURN_IF_ERROR(mpi_->Check(mpi_->Bcast(data + done, count, mpi_->byte, root, comm_), "MPI_Bcast"));
    }
    return absl::OkStatus();
  }

  StatusOr<Tensor> AllGather(const Tensor& tensor) override {
    const int64_t own_rows = tensor.dim(0);
    std::vector<int64_t> rows(size_);
    MR_RETURN_IF_ERROR(
        mpi_->Check(mpi_->Allgather(&own_rows, 1, mpi_->int64, rows.data(), 1, mpi_->int64, comm_), "MPI_Allgather"));
    int64_t row_bytes = static_cast<int64_t>(SizeOf(tensor.dtype()));
    for (int d = 1; d < tensor.rank(); ++d) row_bytes *= tensor.dim(d);
    std::vector<int> counts, displacements;
    int64_t all_rows = 0;
    for (const int64_t count : rows) {
      counts.push_back(static_cast<int>(count * row_bytes));
      displacements.push_back(static_cast<int>(all_rows * row_bytes));
      all_rows += count;
    }
    if (all_rows * row_bytes > INT_MAX)
      return Unimplemented("MPI gathers at most 2 GB at once, not ", all_rows * row_bytes, " bytes");
    Shape shape = tensor.shape();
    shape.set_dim(0, all_rows);
    MR_ASSIGN_OR_RETURN(Tensor all, Tensor::Make(tensor.dtype(), shape));
    MR_RETURN_IF_ERROR(mpi_->Check(mpi_->Allgatherv(tensor.raw_data(), counts[rank_], mpi_->byte, all.raw_data(),
                                                    counts.data(), displacements.data(), mpi_->byte, comm_),
                                   "MPI_Allgatherv"));
    return all;
  }

  Status Leave() override {
    MR_RETURN_IF_ERROR(mpi_->Check(mpi_->Barrier(comm_), "MPI_Barrier"));
    MR_RETURN_IF_ERROR(mpi_->Check(mpi_->CommFree(&comm_), "MPI_Comm_free"));
    return finalizes_ ? mpi_->Check(mpi_->Finalize(), "MPI_Finalize") : absl::OkStatus();
  }

 private:
  MpiCarrier() = default;

  Status Start() {
    MR_ASSIGN_OR_RETURN(mpi_, MpiLibrary::Open());
    int initialized = 0, provided = 0;
    MR_RETURN_IF_ERROR(mpi_->Check(mpi_->Initialized(&initialized), "MPI_Initialized"));
    if (initialized == 0) {
      MR_RETURN_IF_ERROR(
          mpi_->Check(mpi_->InitThread(nullptr, nullptr, MpiLibrary::kThreadSerialized, &provided), "MPI_Init_thread"));
      finalizes_ = true;
    }
    // Of its own: what the program sends does not get in the way.
    MR_RETURN_IF_ERROR(mpi_->Check(mpi_->CommDup(mpi_->world, &comm_), "MPI_Comm_dup"));
    MR_RETURN_IF_ERROR(mpi_->Check(mpi_->CommSetErrhandler(comm_, mpi_->errors_return), "MPI_Comm_set_errhandler"));
    MR_RETURN_IF_ERROR(mpi_->Check(mpi_->CommRank(comm_, &rank_), "MPI_Comm_rank"));
    MR_RETURN_IF_ERROR(mpi_->Check(mpi_->CommSize(comm_, &size_), "MPI_Comm_size"));
    MpiLibrary::Handle local = nullptr;
    MR_RETURN_IF_ERROR(mpi_->Check(
        mpi_->CommSplitType(comm_, MpiLibrary::kSharedMemory, rank_, mpi_->null_info, &local), "MPI_Comm_split_type"));
    MR_RETURN_IF_ERROR(mpi_->Check(mpi_->CommRank(local, &local_rank_), "MPI_Comm_rank"));
    MR_RETURN_IF_ERROR(mpi_->Check(mpi_->CommSize(local, &local_size_), "MPI_Comm_size"));
    return mpi_->Check(mpi_->CommFree(&local), "MPI_Comm_free");
  }

  // Memory that nobody else reads.
  static void Own(Tensor* tensor) {
    if (!tensor->RefCountIsOne()) *tensor = tensor->Clone();
  }

  // MPI has no such types.
  template <typename Narrow>
  Status AllReduceAsFloat(Tensor* tensor, Reduction reduction) {
    Tensor wide(DType::kFloat, tensor->shape());
    std::copy(tensor->flat<Narrow>().begin(), tensor->flat<Narrow>().end(), wide.flat<float>().begin());
    MR_RETURN_IF_ERROR(AllReduce(&wide, reduction));
    Own(tensor);
    std::transform(wide.flat<float>().begin(), wide.flat<float>().end(), tensor->flat<Narrow>().begin(),
                   [](float value) { return Narrow(value); });
    return absl::OkStatus();
  }

  MpiLibrary::Handle OpOf(Reduction reduction) const {
    switch (reduction) {
      case Reduction::kSum:
      case Reduction::kMean:
        return mpi_->sum;
      case Reduction::kMin:
        return mpi_->min;
      case Reduction::kMax:
        return mpi_->max;
      case Reduction::kProduct:
        return mpi_->product;
    }
    return mpi_->sum;
  }

  StatusOr<MpiLibrary::Handle> TypeOf(DType dtype) const {
    switch (dtype) {
      case DType::kFloat:
        return mpi_->float_type;
      case DType::kDouble:
        return mpi_->double_type;
      case DType::kInt8:
        return mpi_->int8;
      case DType::kUInt8:
        return mpi_->uint8;
      case DType::kInt16:
        return mpi_->int16;
      case DType::kUInt16:
        return mpi_->uint16;
      case DType::kInt32:
        return mpi_->int32;
      case DType::kUInt32:
        return mpi_->uint32;
      case DType::kInt64:
        return mpi_->int64;
      case DType::kUInt64:
        return mpi_->uint64;
      default:
        return InvalidArgument("MPI reduces no tensors of type ", DTypeName(dtype));
    }
  }

  const MpiLibrary* mpi_ = nullptr;
  MpiLibrary::Handle comm_ = nullptr;
  bool finalizes_ = false;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
};

}  // namespace

StatusOr<std::unique_ptr<Carrier>> NewMpiCarrier() { return MpiCarrier::Make(); }

}  // namespace millrace::hvd
