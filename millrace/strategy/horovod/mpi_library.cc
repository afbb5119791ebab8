#include "millrace/strategy/horovod/mpi_library.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/string_view.h"

namespace millrace::hvd {
namespace {

StatusOr<const MpiLibrary*> Load() {
  void* library = nullptr;
  // Its plugins look for its symbols among the global ones.
  for (const char* name : {"libmpi.so.40", "libmpi.so"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  }
  if (library == nullptr) {
    return FailedPrecondition("this process was started by mpirun, but Open MPI's library cannot be opened (",
                              dlerror(), "): install the Debian package libopenmpi3, or libopenmpi-dev");
  }
  auto* const mpi = new MpiLibrary;
  std::string missing;
  const auto find = [&](const char* name, auto* to) {
    *to = reinterpret_cast<std::remove_pointer_t<decltype(to)>>(dlsym(library, name));
    if (*to == nullptr && missing.empty()) missing = name;
  };
  find("MPI_Initialized", &mpi->Initialized);
  find("MPI_Init_thread", &mpi->InitThread);
  find("MPI_Finalize", &mpi->Finalize);
  find("MPI_Comm_rank", &mpi->CommRank);
  find("MPI_Comm_size", &mpi->CommSize);
  find("MPI_Comm_split_type", &mpi->CommSplitType);
  find("MPI_Comm_dup", &mpi->CommDup);
  find("MPI_Comm_free", &mpi->CommFree);
  find("MPI_Comm_set_errhandler", &mpi->CommSetErrhandler);
  find("MPI_Error_string", &mpi->ErrorString);
  find("MPI_Allreduce", &mpi->Allreduce);
  find("MPI_Bcast", &mpi->Bcast);
  find("MPI_Allgather", &mpi->Allgather);
  find("MPI_Allgatherv", &mpi->Allgatherv);
  find("MPI_Barrier", &mpi->Barrier);
  find("ompi_mpi_comm_world", &mpi->world);
  find("ompi_mpi_info_null", &mpi->null_info);
  find("ompi_mpi_errors_return", &mpi->errors_return);
  find("ompi_mpi_byte", &mpi->byte);
  find("ompi_mpi_float", &mpi->float_type);
  find("ompi_mpi_double", &mpi->double_type);
  find("ompi_mpi_int8_t", &mpi->int8);
  find("ompi_mpi_uint8_t", &mpi->uint8);
  find("ompi_mpi_int16_t", &mpi->int16);
  find("ompi_mpi_uint16_t", &mpi->uint16);
  find("ompi_mpi_int32_t", &mpi->int32);
  find("ompi_mpi_uint32_t", &mpi->uint32);
  find("ompi_mpi_int64_t", &mpi->int64);
  find("ompi_mpi_uint64_t", &mpi->uint64);
  find("ompi_mpi_op_sum", &mpi->sum);
  find("ompi_mpi_op_min", &mpi->min);
  find("ompi_mpi_op_max", &mpi->max);
  find("ompi_mpi_op_prod", &mpi->product);
  if (missing.empty()) return mpi;
  delete mpi;
  return FailedPrecondition("libmpi.so has no ", missing, ": Open MPI is needed (the Debian package libopenmpi3)");
}

}  // namespace

StatusOr<const MpiLibrary*> MpiLibrary::Open() {
  static const auto* const loaded = new StatusOr<const MpiLibrary*>(Load());
  return *loaded;
}

Status MpiLibrary::Check(int code, const char* call) const {
  if (code == 0) return absl::OkStatus();
  char text[1024] = {};  // MPI_MAX_ERROR_STRING is 256
  int length = 0;
  ErrorString(code, text, &length);
  return Unavailable(call, " failed: ", absl::string_view(text, static_cast<size_t>(length)));
}

}  // namespace millrace::hvd
