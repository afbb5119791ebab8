// The functions of Open MPI's library that are used, found at run time: nothing is linked, and no header is needed. The
// calls are those of the MPI standard; handles are addresses of objects in the library (Open MPI's ABI since 1.7).
#pragma once

#include "millrace/base/status.h"

namespace millrace::hvd {

struct MpiLibrary {
  using Handle = void*;  // MPI_Comm, MPI_Datatype, MPI_Op, MPI_Info, MPI_Errhandler

  // Opens it on the first call. FAILED_PRECONDITION if it is not installed, or is not Open MPI.
  static StatusOr<const MpiLibrary*> Open();
  // OK, or an error with MPI's text and the name of the call.
  Status Check(int code, const char* call) const;

  int (*Initialized)(int* flag);
  int (*InitThread)(int* argc, char*** argv, int required, int* provided);
  int (*Finalize)();
  int (*CommRank)(Handle comm, int* rank);
  int (*CommSize)(Handle comm, int* size);
  int (*CommSplitType)(Handle comm, int type, int key, Handle info, Handle* result);
  int (*CommDup)(Handle comm, Handle* result);
  int (*CommFree)(Handle* comm);
  int (*CommSetErrhandler)(Handle comm, Handle handler);
  int (*ErrorString)(int code, char* text, int* length);
  int (*Allreduce)(const void* send, void* receive, int count, Handle type, Handle op, Handle comm);
  int (*Bcast)(void* data, int count, Handle type, int root, Handle comm);
  int (*Allgather)(const void* send, int send_count, Handle send_type, void* receive, int receive_count,
                   Handle receive_type, Handle comm);
  int (*Allgatherv)(const void* send, int send_count, Handle send_type, void* receive, const int* counts,
                    const int* displacements, Handle receive_type, Handle comm);
  int (*Barrier)(Handle comm);

  Handle world, null_info, errors_return;
  Handle byte, float_type, double_type, int8, uint8, int16, uint16, int32, uint32, int64, uint64;
  Handle sum, min, max, product;

  static constexpr int kThreadSerialized = 2;
  static constexpr int kSharedMemory = 0;  // MPI_COMM_TYPE_SHARED
  static inline void* const kInPlace = reinterpret_cast<void*>(1);
};

}  // namespace millrace::hvd
