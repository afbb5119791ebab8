// Lookup tables from keys to values.
#pragma once

#include <string>
#include <utility>

#include "millrace/runtime/resource_manager.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Thread-safe. Callers check that tensors have the table's types; shapes are checked here.
class LookupTable : public Resource {
 public:
  static constexpr char kTypeName[] = "tensorflow::lookup::LookupInterface";

  struct Options {
    std::string name;
    DType key_dtype = DType::kInvalid;
    DType value_dtype = DType::kInvalid;
    Shape value_shape = {};
    // Filled once, by Initialize, and immutable afterwards.
    bool initializable = false;
  };
  using KeysAndValues = std::pair<Tensor, Tensor>;

  explicit LookupTable(Options options) : options_(std::move(options)) {}

  const Options& options() const { return options_; }
  virtual int64_t size() const = 0;
  // The value of each key; `otherwise` for missing keys.
  virtual StatusOr<Tensor> Find(const Tensor& keys, const Tensor& otherwise, Allocator* allocator) const = 0;
  // UNIMPLEMENTED for an initializable table.
  virtual Status Insert(const Tensor& keys, const Tensor& values) = 0;
  virtual Status Remove(const Tensor& keys) = 0;
  // Replaces the whole content.
  virtual Status Import(const Tensor& keys, const Tensor& values) = 0;
  virtual StatusOr<KeysAndValues> Export() const = 0;
  // Sets the content of an initializable table from vectors on the first call; a no-op afterwards. FAILED_PRECONDITION
  // if a key has two values.
  virtual Status Initialize(const Tensor& keys, const Tensor& values);

  std::string DebugString() const override;

  // An unordered hash table.
  static StatusOr<RefPtr<LookupTable>> MakeHashed(Options options);

  struct DenseOptions {
    Tensor empty_key;
    Tensor deleted_key;  // if not set, keys cannot be removed
    int64_t num_buckets = 0;
    double max_load_factor = 0.8;
  };
  // A table in two tensors, with keys of any shape; two reserved keys mark empty and deleted buckets.
  static StatusOr<RefPtr<LookupTable>> MakeDense(Options options, DenseOptions dense);

 protected:
  // INVALID_ARGUMENT unless there is one value per key. The shape of `keys` ends in `key_shape`.
  Status CheckValues(const Tensor& keys, const Shape& key_shape, const Tensor& values) const;
  // The shape of the values of `keys`.
  StatusOr<Shape> ValuesShape(const Tensor& keys, const Shape& key_shape) const;

  const Options options_;
};

// TensorFlow's 64-bit string hash, which determines the order of its tables.
uint64_t HashText(absl::string_view text);

}  // namespace millrace
