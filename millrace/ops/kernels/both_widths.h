// Compiles the loops of the file MILLRACE_LOOPS twice: in namespace `narrow` with the vectors of vec.h, and in `wide`
// with those of wide_vec.h, where there are such (MILLRACE_WIDE_VECTORS). Include both before, outside of namespaces;
// include this where the loops should stand. Undefines MILLRACE_LOOPS.
namespace narrow {
#include MILLRACE_LOOPS
}
#if defined(MILLRACE_WIDE_VECTORS)
MILLRACE_BEGIN_WIDE
namespace wide {
using wide_vec::Broadcast;
using wide_vec::kVec;
using wide_vec::Load;
using wide_vec::MulAdd;
using wide_vec::Store;
using wide_vec::Vec;
#include MILLRACE_LOOPS
}  // namespace wide
MILLRACE_END_WIDE
#endif
#undef MILLRACE_LOOPS
