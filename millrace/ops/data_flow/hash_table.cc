// The implementation of HashTable, MutableHashTable and MutableHashTableOfTensors.
#include <unordered_map>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/ops/data_flow/lookup_table.h"
#include "millrace/ops/data_flow/rows.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

template <typename Key>
struct KeyHash {
  size_t operator()(const Key& key) const {
    if constexpr (std::is_same_v<Key, std::string>) {
      return HashText(key);
    } else {
      return static_cast<size_t>(key);
    }
  }
};

// Maps keys to rows of one growing tensor. Using std::unordered_map makes the order of an export match TensorFlow's.
template <typename Key>
class HashedTable : public LookupTable {
 public:
  using LookupTable::LookupTable;

  int64_t size() const override {
    MutexLock lock(&mu_);
    return static_cast<int64_t>(content_.map.size());
  }

  StatusOr<Tensor> Find(const Tensor& keys, const Tensor& otherwise, Allocator* allocator) const override {
    MR_ASSIGN_OR_RETURN(const Shape shape, ValuesShape(keys, Shape()));
    const int64_t row = options_.value_shape.num_elements();
    const bool each = !options_.initializable && otherwise.shape() == shape;
    if (otherwise.num_elements() < row ||
        (!options_.initializable && !each && otherwise.shape() != options_.value_shape)) {
      return InvalidArgument("Expected shape ", options_.value_shape.ToString(), " or ", shape.ToString(),
                             " for default value, got ", otherwise.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor values, Tensor::Make(options_.value_dtype, shape, allocator));
    MutexLock lock(&mu_);
    if (options_.initializable && !initialized_) return FailedPrecondition("Table not initialized.");
    FindIn(content_, keys, otherwise, each, &values);
    return values;
  }

  Status Insert(const Tensor& keys, const Tensor& values) override {
    if (options_.initializable)
      return Unimplemented("Insert not supported by InitializableLookupTable implementations");
    MR_RETURN_IF_ERROR(CheckValues(keys, Shape(), values));
    MutexLock lock(&mu_);
    return InsertInto(keys, values, /*unique=*/false, &content_);
  }

  Status Remove(const Tensor& keys) override {
    if (options_.initializable)
      return Unimplemented("Remove not supported by InitializableLookupTable implementations");
    MutexLock lock(&mu_);
    for (const Key& key : keys.flat<Key>()) {
      const auto at = content_.map.find(key);
      if (at == content_.map.end()) continue;
      content_.free.push_back(at->second);
      content_.map.erase(at);
    }
    return absl::OkStatus();
  }

  Status Import(const Tensor& keys, const Tensor& values) override {
    if (options_.initializable) return Initialize(keys, values);
    MR_RETURN_IF_ERROR(CheckValues(keys, Shape(), values));
    MutexLock lock(&mu_);
    content_.map.clear();
    content_.free.clear();
    content_.used = 0;
    return InsertInto(keys, values, /*unique=*/false, &content_);
  }

  StatusOr<KeysAndValues> Export() const override {
    MutexLock lock(&mu_);
    if (options_.initializable && !initialized_) return Aborted("HashTable is not initialized.");
    return ExportFrom(content_);
  }

  Status Initialize(const Tensor& keys, const Tensor& values) override {
    if (!options_.initializable) return LookupTable::Initialize(keys, values);
    if (keys.rank() != 1) return InvalidArgument("Keys must be a vector, but received shape", keys.shape().ToString());
    if (values.rank() != 1) {
      return InvalidArgument("Values must be a vector, but received shape", values.shape().ToString());
    }
    if (keys.num_elements() != values.num_elements()) {
      return InvalidArgument("Keys and values must have the same size ", keys.num_elements(), " vs ",
                             values.num_elements());
    }
    MutexLock lock(&mu_);
    if (initialized_) return absl::OkStatus();
    Content content;
    MR_RETURN_IF_ERROR(InsertInto(keys, values, /*unique=*/true, &content));
    content_ = std::move(content);
    initialized_ = true;
    return absl::OkStatus();
  }

 private:
  struct Content {
    std::unordered_map<Key, int64_t, KeyHash<Key>> map;
    Tensor rows;  // [capacity, value shape]
    int64_t capacity = 0;
    int64_t used = 0;
    std::vector<int64_t> free;  // rows of removed keys
  };

  void FindIn(const Content& content, const Tensor& keys, const Tensor& otherwise, bool each, Tensor* values) const {
    const int64_t row = options_.value_shape.num_elements();
    const Key* const key = keys.data<Key>();
    DispatchMove(options_.value_dtype, [&](auto tag) {
      using V = typename decltype(tag)::type;
      V* to = values->raw<V>();
      for (int64_t i = 0; i < keys.num_elements(); ++i, to += row) {
        const auto at = content.map.find(key[i]);
        const V* const from = at == content.map.end() ? otherwise.raw<V>() + (each ? i * row : 0)
                                                      : content.rows.template raw<V>() + at->second * row;
        std::copy_n(from, row, to);
      }
    });
  }

  StatusOr<KeysAndValues> ExportFrom(const Content& content) const {
    const int64_t n = static_cast<int64_t>(content.map.size());
    MR_ASSIGN_OR_RETURN(Tensor keys, Tensor::Make(options_.key_dtype, Shape({n})));
    Shape::Dims dims = {n};
    for (int64_t d : options_.value_shape.dims()) dims.push_back(d);
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor values, Tensor::Make(options_.value_dtype, shape));
    const int64_t row = options_.value_shape.num_elements();
    DispatchMove(options_.value_dtype, [&](auto tag) {
      using V = typename decltype(tag)::type;
      Key* key = keys.data<Key>();
      V* to = values.raw<V>();
      for (const auto& [k, at] : content.map) {
        *key++ = k;
        std::copy_n(content.rows.template raw<V>() + at * row, row, to);
        to += row;
      }
    });
    return KeysAndValues(std::move(keys), std::move(values));
  }

  Status Reserve(int64_t more, Content* content) const {
    const int64_t wanted = content->used + more;
    if (wanted <= content->capacity) return absl::OkStatus();
    const int64_t capacity = std::max(wanted, 2 * content->capacity);
    Shape::Dims dims = {capacity};
    for (int64_t d : options_.value_shape.dims()) dims.push_back(d);
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor rows, Tensor::Make(options_.value_dtype, shape));
    if (content->used > 0) PutElements(content->rows.Slice(0, content->used), &rows, 0);
    content->rows = std::move(rows);
    content->capacity = capacity;
    return absl::OkStatus();
  }

  // With `unique`, a key that already has a different value is an error.
  Status InsertInto(const Tensor& keys, const Tensor& values, bool unique, Content* content) const {
    MR_RETURN_IF_ERROR(Reserve(keys.num_elements(), content));
    const int64_t row = options_.value_shape.num_elements();
    Status status;
    const bool known = DispatchMove(options_.value_dtype, [&](auto tag) {
      using V = typename decltype(tag)::type;
      const V* from = values.raw<V>();
      for (const Key& key : keys.flat<Key>()) {
        const auto [at, is_new] = content->map.try_emplace(key, 0);
        if (is_new) {
          at->second = content->free.empty() ? content->used++ : content->free.back();
          if (!content->free.empty()) content->free.pop_back();
        }
        V* const to = content->rows.template raw<V>() + at->second * row;
        if constexpr (requires(const V& a, const V& b) {
                        { a == b } -> std::convertible_to<bool>;
                      }) {
          if (unique && !is_new && !std::equal(to, to + row, from)) {
            status = FailedPrecondition("HashTable has different value for same key. Key ", key,
                                        " has another value already");
            return;
          }
        }
        std::copy_n(from, row, to);
        from += row;
      }
    });
    MR_CHECK(known);
    return status;
  }

  mutable Mutex mu_;
  bool initialized_ ABSL_GUARDED_BY(mu_) = false;
  Content content_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

StatusOr<RefPtr<LookupTable>> LookupTable::MakeHashed(Options options) {
  RefPtr<LookupTable> table;
  DispatchType(Types<int32_t, int64_t, std::string>{}, options.key_dtype,
               [&](auto tag) { table = MakeRef<HashedTable<typename decltype(tag)::type>>(std::move(options)); });
  if (!table) return InvalidArgument("a table cannot have keys of type ", options.key_dtype);
  return table;
}

}  // namespace millrace
