// Tables from keys to ids, such as the words of a vocabulary: TensorFlow's tf.lookup.
//
//   IdTable words = IndexTableFromFile(scope, "vocabulary.txt", {.num_oov_buckets = 10});
//   Output ids = words.Lookup(scope, tokens);
//   session.Run(TablesInitializer(scope));
//
// A table is filled by an op that each session runs once before it looks something up; a Scaffold, and with it a
// training session or an Estimator, does that.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/input.h"
#include "millrace/api/output.h"

namespace millrace {

// Ops that fill tables, in the order of creation.
void AddTableInitializer(const Operation& op);
std::vector<Operation> TableInitializers(const Scope& scope);
// Runs those created so far, so build it last.
Operation TablesInitializer(const Scope& scope);

struct IdTableOptions {
  // Keys that are not in the vocabulary get an id after it, by their hash: from vocabulary size on.
  int64_t num_oov_buckets = 0;
  // The id of such keys if there are no buckets for them.
  int64_t default_value = -1;
};

class IdTable {
 public:
  IdTable() = default;
  // int64, of the shape of `keys`. Keys of a table of integers may be of any integer type.
  Output Lookup(const Scope& scope, const Input& keys) const;
  int64_t num_oov_buckets() const { return options_.num_oov_buckets; }
  DType key_dtype() const { return key_dtype_; }

 private:
  friend IdTable MakeIdTable(const Scope& scope, const std::string& shared_name, DType key_dtype, int64_t size,
                             const IdTableOptions& options, Output* handle);
  Output handle_;
  DType key_dtype_ = DType::kString;
  int64_t size_ = 0;
  IdTableOptions options_;
};

// The id of vocabulary[i], string or int64, is i. Tables of the same vocabulary are one table in a task. The scope
// fails with INVALID_ARGUMENT if the vocabulary is empty, of another type, or has a key twice.
IdTable IndexTableFromTensor(const Scope& scope, const Tensor& vocabulary, const IdTableOptions& options = {});

struct IdTableFileOptions {
  int64_t num_oov_buckets = 0;
  int64_t default_value = -1;
  // The number of lines that count, from the first on.
  int64_t vocabulary_size = 0;
  // string, or int64 for lines that are numbers.
  DType key_dtype = DType::kString;
};
// The id of line i of the file is i. The file is read when the table is filled, by the task that the table is on. The
// name of the file is a constant of the graph, `asset`, if that is wanted for a SavedModel.
IdTable IndexTableFromFile(const Scope& scope, const std::string& file, const IdTableFileOptions& options,
                           Output* asset = nullptr);

}  // namespace millrace
