// Tables from keys to values.
#pragma once

#include <string>
#include <utility>

#include "millrace/runtime/resource_manager.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Thread-safe. Tensors of other types than the table's do not get here; shapes are checked here.
class LookupTable : public Resource {
 public:
  static constexpr char kTypeName[] = "tensorflow::lookup::LookupInterface";

  struct Options {
    std::string name;
    DType key_dtype = DType::kInvalid;
    DType value_dtype = DType::kInvalid;
    Shape value_shape = {};
    // Filled once, by Initialize, and not changed after.
    bool initializable = false;
  };
  using KeysAndValues = std::pair<Tensor, Tensor>;

  explicit LookupTable(Options options) : options_(std::move(options)) {}

  const Options& options() const { return options_; }
  virtual int64_t size() const = 0;
  // The value of each key; where there is none, `otherwise`.
  virtual StatusOr<Tensor> Find(const Tensor& keys, const Tensor& otherwise,
                                Allocator* allocator) const = 0;
  // UNIMPLEMENTED for a table that is filled once.
  virtual Status Insert(const Tensor& keys, const Tensor& values) = 0;
  virtual Status Remove(const Tensor& keys) = 0;
  // Replaces everything.
  virtual Status Import(const Tensor& keys, const Tensor& values) = 0;
  virtual StatusOr<KeysAndValues> Export() const = 0;
  // The first time, takes vectors as the content of a table that is filled once; no effect later.
  // FAILED_PRECONDITION when a key has two values.
  virtual Status Initialize(const Tensor& keys, const Tensor& values);

  std::string DebugString() const override;

  // A table whose elements lie where a hash of the key says, in no order.
  static StatusOr<RefPtr<LookupTable>> MakeHashed(Options options);

  struct DenseOptions {
    Tensor empty_key;
    Tensor deleted_key;  // none: nothing can be removed
    int64_t num_buckets = 0;
    double max_load_factor = 0.8;
  };
  // A table in two tensors, with keys of any shape, two of which mean "nothing here".
  static StatusOr<RefPtr<LookupTable>> MakeDense(Options options, DenseOptions dense);

 protected:
  // INVALID_ARGUMENT unless there is a value for each key. Keys end in `key_shape`.
  Status CheckValues(const Tensor& keys, const Shape& key_shape, const Tensor& values) const;
  // The shape of the values of `keys`.
  StatusOr<Shape> ValuesShape(const Tensor& keys, const Shape& key_shape) const;

  const Options options_;
};

// 64 bits that depend on all of `text`: TensorFlow's hash, by which its tables are ordered.
uint64_t HashText(absl::string_view text);

}  // namespace millrace
