// How the ranks reach each other. Implementations: the step lane (lane_carrier.h) and MPI (mpi_carrier.h).
#pragma once

#include <memory>
#include <string>

#include "millrace/base/status.h"
#include "millrace/collective/reduction_kind.h"
#include "millrace/tensor/tensor.h"

namespace millrace::hvd {

// Every rank calls the same operations in the same order, with tensors of the same type and shape; the Engine sees to
// that. Used by one thread, except where it says otherwise. An error names the rank that caused it if it is known, and
// ends the use of the carrier.
class Carrier {
 public:
  // If Leave was not called, the other ranks get an error.
  virtual ~Carrier() = default;

  // Thread-safe, as are the other three.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Among the ranks of this host.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;

  // In place.
  virtual Status AllReduce(Tensor* tensor, collective::Reduction reduction) = 0;
  virtual Status Broadcast(Tensor* tensor, int root) = 0;
  // The tensors may differ in the first dimension.
  virtual StatusOr<Tensor> AllGather(const Tensor& tensor) = 0;
  // After the last operation: waits for all ranks.
  virtual Status Leave() = 0;

  // Whom the operation that runs waits for; empty if that is not known. Thread-safe.
  virtual std::string Awaited() const { return ""; }
};

}  // namespace millrace::hvd
