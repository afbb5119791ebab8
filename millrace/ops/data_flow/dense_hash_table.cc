// MutableDenseHashTable: an open-addressing hash table in two tensors.
#include "millrace/base/mutex.h"
#include "millrace/ops/data_flow/lookup_table.h"
#include "millrace/ops/data_flow/rows.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Limits the initial size; a table may grow beyond it by insertions.
constexpr int64_t kMaxInitialBuckets = int64_t{1} << 27;

uint64_t Combine(uint64_t a, uint64_t b) { return a ^ (b + 0x9e3779b97f4a7800 + (a << 10) + (a >> 4)); }

template <typename Key>
uint64_t HashElement(const Key& key) {
  if constexpr (std::is_same_v<Key, std::string>) {
    return HashText(key);
  } else {
    return static_cast<uint64_t>(key);
  }
}

// Bucket i holds a key, the empty key (never used) or the deleted key. A key is in the first free bucket of the probe
// sequence that starts at its hash. Probing and growth match TensorFlow's, because an export returns the buckets
// themselves.
template <typename Key>
class DenseTable : public LookupTable {
 public:
  DenseTable(Options options, DenseOptions dense)
      : LookupTable(std::move(options)),
        dense_(std::move(dense)),
        key_shape_(dense_.empty_key.shape()),
        key_size_(key_shape_.num_elements()),
        value_size_(options_.value_shape.num_elements()) {}

  Status Allocate(int64_t num_buckets) {
    MutexLock lock(&mu_);
    MR_ASSIGN_OR_RETURN(content_, NewContent(num_buckets));
    return absl::OkStatus();
  }

  int64_t size() const override {
    MutexLock lock(&mu_);
    return content_.num_entries;
  }

  StatusOr<Tensor> Find(const Tensor& keys, const Tensor& otherwise, Allocator* allocator) const override {
    MR_RETURN_IF_ERROR(CheckKeyShape(keys));
    MR_ASSIGN_OR_RETURN(const Shape shape, ValuesShape(keys, key_shape_));
    if (otherwise.shape() != options_.value_shape) {
      return InvalidArgument("Expected shape ", options_.value_shape.ToString(), " for default value, got ",
                             otherwise.shape().ToString());
    }
    MR_RETURN_IF_ERROR(CheckKeys(keys));
    MR_ASSIGN_OR_RETURN(Tensor values, Tensor::Make(options_.value_dtype, shape, allocator));
    MutexLock lock(&mu_);
    FindIn(content_, keys, otherwise, &values);
    return values;
  }

  Status Insert(const Tensor& keys, const Tensor& values) override {
    MR_RETURN_IF_ERROR(CheckKeyShape(keys));
    MR_RETURN_IF_ERROR(CheckValues(keys, key_shape_, values));
    MR_RETURN_IF_ERROR(CheckKeys(keys));
    MutexLock lock(&mu_);
    const int64_t n = NumKeys(keys);
    MR_RETURN_IF_ERROR(MakeRoom(content_.num_entries + n));
    for (int64_t i = 0; i < n; ++i) {
      MR_RETURN_IF_ERROR(Put(keys.data<Key>() + i * key_size_, values, i, &content_));
    }
    return absl::OkStatus();
  }

  Status Remove(const Tensor& keys) override {
    if (!dense_.deleted_key.IsInitialized()) return Unimplemented("this table has no key that marks removed ones");
    MR_RETURN_IF_ERROR(CheckKeyShape(keys));
    MR_RETURN_IF_ERROR(CheckKeys(keys));
    MutexLock lock(&mu_);
    const int64_t n = NumKeys(keys);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t bucket = FindBucket(content_, keys.data<Key>() + i * key_size_);
      if (bucket < 0) continue;
      std::copy_n(dense_.deleted_key.data<Key>(), key_size_, content_.keys.template data<Key>() + bucket * key_size_);
      --content_.num_entries;
    }
    return absl::OkStatus();
  }

  // Imports the exported buckets unchanged.
  Status Import(const Tensor& keys, const Tensor& values) override {
    if (keys.rank() != 2 || keys.dim(1) != key_size_ || values.rank() < 1 || values.dim(0) != keys.dim(0) ||
        values.num_elements() != keys.dim(0) * value_size_) {
      return InvalidArgument("Expected keys and values as another such table exports them, got shapes ",
                             keys.shape().ToString(), " and ", values.shape().ToString());
    }
    const int64_t n = keys.dim(0);
    if (n < 4 || (n & (n - 1)) != 0) {
      return InvalidArgument("Number of buckets must be at least 4 and a power of 2, got: ", n);
    }
    MutexLock lock(&mu_);
    MR_ASSIGN_OR_RETURN(Content content, NewContent(n));
    PutElements(keys, &content.keys, 0);
    PutElements(values, &content.values, 0);
    for (int64_t i = 0; i < n; ++i) content.num_entries += !IsVacant(content.keys.template data<Key>() + i * key_size_);
    content_ = std::move(content);
    return absl::OkStatus();
  }

  StatusOr<KeysAndValues> Export() const override {
    MutexLock lock(&mu_);
    return KeysAndValues(content_.keys.Clone(), content_.values.Clone());
  }

 private:
  struct Content {
    int64_t num_buckets = 0;
    int64_t num_entries = 0;
    Tensor keys;    // [buckets, elements of a key]
    Tensor values;  // [buckets, elements of a value]
  };

  StatusOr<Content> NewContent(int64_t num_buckets) const {
    Content content;
    content.num_buckets = num_buckets;
    MR_ASSIGN_OR_RETURN(const Shape key_shape, Shape::Make({num_buckets, key_size_}));
    MR_ASSIGN_OR_RETURN(const Shape value_shape, Shape::Make({num_buckets, value_size_}));
    MR_ASSIGN_OR_RETURN(content.keys, Tensor::Make(options_.key_dtype, key_shape));
    MR_ASSIGN_OR_RETURN(content.values, Zeros(options_.value_dtype, value_shape, Allocator::Heap()));
    for (int64_t i = 0; i < num_buckets; ++i) PutElements(dense_.empty_key, &content.keys, i * key_size_);
    return content;
  }

  int64_t NumKeys(const Tensor& keys) const { return key_size_ == 0 ? 0 : keys.num_elements() / key_size_; }
  bool Equal(const Key* a, const Key* b) const { return std::equal(a, a + key_size_, b); }
  bool IsEmpty(const Key* key) const { return Equal(key, dense_.empty_key.data<Key>()); }
  bool IsDeleted(const Key* key) const {
    return dense_.deleted_key.IsInitialized() && Equal(key, dense_.deleted_key.data<Key>());
  }
  bool IsVacant(const Key* key) const { return IsEmpty(key) || IsDeleted(key); }

  // One key, or a vector of keys.
  Status CheckKeyShape(const Tensor& keys) const {
    const int64_t count = keys.rank() == key_shape_.rank() ? 1 : (keys.rank() == 0 ? 1 : keys.dim(0));
    if (keys.num_elements() == count * key_size_) return ValuesShape(keys, key_shape_).status();
    Shape expected({count});
    for (const int64_t d : key_shape_.dims()) expected.AddDim(d);
    return InvalidArgument("Expected key shape ", expected.ToString(), " got ", keys.shape().ToString());
  }

  Status CheckKeys(const Tensor& keys) const {
    const int64_t n = NumKeys(keys);
    for (int64_t i = 0; i < n; ++i) {
      const Key* const key = keys.data<Key>() + i * key_size_;
      if (IsEmpty(key)) return InvalidArgument("Using the empty_key as a table key is not allowed");
      if (IsDeleted(key)) return InvalidArgument("Using the deleted_key as a table key is not allowed");
    }
    return absl::OkStatus();
  }

  uint64_t Hash(const Key* key) const {
    if (key_size_ == 1) return HashElement(key[0]);
    uint64_t hash = 0;
    for (int64_t i = 0; i < key_size_; ++i) hash = Combine(hash, HashElement(key[i]));
    return hash;
  }

  // Calls fn(bucket, its key) along the key's probe sequence until it returns true. Returns false if it never does.
  template <typename Fn>
  bool Probe(const Content& content, const Key* key, Fn&& fn) const {
    const int64_t mask = content.num_buckets - 1;
    int64_t bucket = static_cast<int64_t>(Hash(key)) & mask;
    for (int64_t probes = 1; probes <= content.num_buckets; ++probes) {
      if (fn(bucket, content.keys.template data<Key>() + bucket * key_size_)) return true;
      bucket = (bucket + probes) & mask;
    }
    return false;
  }

  // -1 if the key is not in the table.
  int64_t FindBucket(const Content& content, const Key* key) const {
    int64_t found = -1;
    Probe(content, key, [&](int64_t bucket, const Key* there) {
      if (Equal(there, key)) found = bucket;
      return found >= 0 || IsEmpty(there);
    });
    return found;
  }

  void FindIn(const Content& content, const Tensor& keys, const Tensor& otherwise, Tensor* values) const {
    const int64_t n = NumKeys(keys);
    DispatchMove(options_.value_dtype, [&](auto tag) {
      using V = typename decltype(tag)::type;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t bucket = FindBucket(content, keys.data<Key>() + i * key_size_);
        const V* const from = bucket < 0 ? otherwise.raw<V>() : content.values.template raw<V>() + bucket * value_size_;
        std::copy_n(from, value_size_, values->raw<V>() + i * value_size_);
      }
    });
  }

  // Row `i` of `values` becomes the value of `key`. There must be a free bucket.
  Status Put(const Key* key, const Tensor& values, int64_t i, Content* content) const {
    const bool put = Probe(*content, key, [&](int64_t bucket, const Key* there) {
      const bool is_new = IsEmpty(there);
      if (!is_new && !Equal(there, key)) return false;
      if (is_new) {
        std::copy_n(key, key_size_, content->keys.template data<Key>() + bucket * key_size_);
        ++content->num_entries;
      }
      DispatchMove(options_.value_dtype, [&](auto tag) {
        using V = typename decltype(tag)::type;
        std::copy_n(values.raw<V>() + i * value_size_, value_size_,
                    content->values.template raw<V>() + bucket * value_size_);
      });
      return true;
    });
    return put ? absl::OkStatus() : Internal("table '", options_.name, "' has no bucket left");
  }

  // Doubles the number of buckets until `entries` are within the maximum load factor.
  Status MakeRoom(int64_t entries) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    int64_t num_buckets = content_.num_buckets;
    while (static_cast<double>(entries) > static_cast<double>(num_buckets) * dense_.max_load_factor) num_buckets *= 2;
    if (num_buckets == content_.num_buckets) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(Content grown, NewContent(num_buckets));
    for (int64_t i = 0; i < content_.num_buckets; ++i) {
      const Key* const key = content_.keys.template data<Key>() + i * key_size_;
      if (!IsVacant(key)) MR_RETURN_IF_ERROR(Put(key, content_.values, i, &grown));
    }
    content_ = std::move(grown);
    return absl::OkStatus();
  }

  const DenseOptions dense_;
  const Shape key_shape_;
  const int64_t key_size_;
  const int64_t value_size_;
  mutable Mutex mu_;
  Content content_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

StatusOr<RefPtr<LookupTable>> LookupTable::MakeDense(Options options, DenseOptions dense) {
  const int64_t n = dense.num_buckets;
  if (n < 4 || (n & (n - 1)) != 0) {
    return InvalidArgument("Number of buckets must be at least 4 and a power of 2, got: ", n);
  }
  if (n > kMaxInitialBuckets) return ResourceExhausted("a table of ", n, " buckets to begin with is too large");
  if (!(dense.max_load_factor > 0 && dense.max_load_factor < 1)) {
    return InvalidArgument("max_load_factor must be between 0 and 1, got: ", dense.max_load_factor);
  }
  if (dense.empty_key.num_elements() == 0) return InvalidArgument("the empty key must have elements");
  if (dense.deleted_key.IsInitialized() && dense.deleted_key.shape() != dense.empty_key.shape()) {
    return InvalidArgument("Empty and deleted keys must have same shape, got shapes: ",
                           dense.empty_key.shape().ToString(), " and ", dense.deleted_key.shape().ToString());
  }
  RefPtr<LookupTable> result;
  Status status = InvalidArgument("a table cannot have keys of type ", options.key_dtype);
  DispatchType(Types<int32_t, int64_t, std::string>{}, options.key_dtype, [&](auto tag) {
    using Key = typename decltype(tag)::type;
    if (dense.deleted_key.IsInitialized() && dense.empty_key.flat<Key>() == dense.deleted_key.flat<Key>()) {
      status = InvalidArgument("Empty and deleted keys cannot be equal");
      return;
    }
    auto table = MakeRef<DenseTable<Key>>(std::move(options), std::move(dense));
    status = table->Allocate(n);
    result = std::move(table);
  });
  if (!status.ok()) return status;
  return result;
}

}  // namespace millrace
