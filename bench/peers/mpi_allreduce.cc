// All-reduce of float32 between processes of this host by MPI; prints a JSON line for each size.
//
//   mpicxx -O2 mpi_allreduce.cc -o mpi_allreduce && mpirun -np 2 mpi_allreduce 1024,1048576 5
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace {

int Calls(size_t size) { return size <= 4096 ? 2000 : size <= (1 << 20) ? 200 : size <= (32 << 20) ? 20 : 8; }

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::stringstream sizes(argc > 1 ? argv[1] : "1024");
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
  for (std::string text; std::getline(sizes, text, ',');) {
    const size_t size = std::stoul(text);
    const int count = static_cast<int>(size / sizeof(float));
    std::vector<float> values(static_cast<size_t>(count)), sums(static_cast<size_t>(count));
    std::vector<double> times;
    for (int repeat = 0; repeat <= repeats; ++repeat) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double begun = MPI_Wtime();
      for (int i = 0; i < Calls(size); ++i)
        MPI_Allreduce(values.data(), sums.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      const double own = (MPI_Wtime() - begun) / Calls(size) * 1e3;
      double slowest = 0;
      MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (repeat > 0) times.push_back(slowest);
    }
    std::sort(times.begin(), times.end());
    if (rank == 0)
      std::printf("{\"side\": \"mpi\", \"ranks\": %d, \"bytes\": %zu, \"ms\": %.5g, \"low\": %.5g, \"high\": %.5g}\n",
                  ranks, size, times[times.size() / 2], times.front(), times.back());
  }
  MPI_Finalize();
  return 0;
}
