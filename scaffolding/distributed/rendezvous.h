// How processes find each other: the store, the rank and the size of the world, from what a launcher has set or the
// script says.
//   env://             MASTER_ADDR and MASTER_PORT (127.0.0.1, 29500), RANK and WORLD_SIZE as torchrun sets them, or
//                      mpirun's OMPI_COMM_WORLD_RANK and _SIZE, MPICH's PMI_RANK and PMI_SIZE, srun's SLURM_PROCID and
//                      SLURM_NTASKS, whose first node is then MASTER_ADDR
//   tcp://host:port    where rank 0 serves the store
//   file:///path       a file that all reach
#pragma once
#include <memory>

#include "scaffolding/distributed/process_group.h"

namespace sf::distributed {

struct Rendezvous {
  std::shared_ptr<Store> store;
  int rank = 0, world_size = 1;
};

// rank, world_size: -1 where the environment says them. ValueError for a method that is none, and where a number is
// missing, naming the variables; RuntimeError where nobody answers.
Rendezvous rendezvous(const std::string& init_method, int rank = -1, int world_size = -1,
                      double timeout_seconds = 1800);

// The group of all processes, as torch.distributed makes it: backend is "gloo", "mpi" or "fake".
std::unique_ptr<ProcessGroup> init_process_group(const std::string& backend = "gloo",
                                                 const std::string& init_method = "env://", int rank = -1,
                                                 int world_size = -1, double timeout_seconds = 1800);

// The first name of a list of nodes in Slurm's notation: "node07" of "node[07-09,12],login1".
std::string first_node(const std::string& list);

}  // namespace sf::distributed
