// The protocol of collectives/all_reduce_bench.cpp for an MPI: mpirun -n 2 mpi_all_reduce [SECONDS]
// prints the same rows of JSON, with the contender's name from TUTTI_MPI_NAME ("open_mpi").

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.3;
  const char* name = std::getenv("TUTTI_MPI_NAME");
  for (const int bytes :
       {4, 64, 1024, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20}) {
    const int count = bytes / 4;
    std::vector<float> source(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      source[static_cast<std::size_t>(i)] = std::sin(0.37F * static_cast<float>(i) + rank);
    }
    std::vector<float> buffer(source);
    std::vector<double> times;
    const double end = MPI_Wtime() + seconds;
    for (int round = 0;; ++round) {
      std::copy(source.begin(), source.end(), buffer.begin());  // as a backward pass does
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      MPI_Allreduce(MPI_IN_PLACE, buffer.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      const double time = MPI_Wtime() - start;
      if (round >= 3) times.push_back(time * 1e6);
      int go_on = round < 8 || MPI_Wtime() < end ? 1 : 0;
      MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
      if (go_on == 0) break;
    }
    std::sort(times.begin(), times.end());
    if (rank == 0) {
      std::printf(
          "{\"best_us\":%g,\"bytes\":%d,\"calls\":%zu,\"contender\":\"%s\",\"median_us\":%g,"
          "\"ranks\":%d}\n",
          times.front(), bytes, times.size(), name == nullptr ? "open_mpi" : name,
          times[times.size() / 2], size);
    }
  }
  MPI_Finalize();
}
